#include "control/host_link.h"

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"
#include "control/metric_messages.h"
#include "proto/control.pb.h"
#include "request/convert.h"

namespace aerie::control {
namespace {

constexpr double kHeartbeatSeconds = 0.5;

}  // namespace

class HostLink::Impl {
  public:
    Impl(HostIdentity identity, std::unique_ptr<Uplink> uplink)
        : identity_(std::move(identity)), uplink_(std::move(uplink)) {}

    void start(PeerListener& peers) {
        CHECK(!thread_.joinable(), "a link is started once");
        peers_ = &peers;
        send_join();
        thread_ = std::thread([this] { run(); });
    }

    void loaded(HostRuntime& runtime) {
        std::lock_guard lock(mutex_);
        runtime_ = &runtime;
        send_ready();
    }

    void report_reached(std::vector<ReachedPeer> reached) {
        std::lock_guard lock(mutex_);
        reached_ = std::move(reached);
        send_ready();
        // With the lock held, so that nothing is called once stop() has returned.
        if (runtime_ != nullptr) runtime_->peers_changed();
    }

    void report_failed(const std::string& rank, const std::string& why) {
        proto::FromHost message;
        message.mutable_rank_failed()->set_rank(rank);
        message.mutable_rank_failed()->set_why(why);
        uplink_->send(std::move(message));
    }

    void emit(const std::vector<TokenOut>& tokens) {
        proto::FromHost message;
        for (const TokenOut& token : tokens) {
            to_proto(token, *message.mutable_tokens()->add_tokens());
        }
        uplink_->send(std::move(message));
    }

    void flushed(uint64_t query, const std::string& why) {
        proto::FromHost message;
        message.mutable_flushed()->set_query(query);
        message.mutable_flushed()->set_why(why);
        uplink_->send(std::move(message));
    }

    End wait_end(TimePoint deadline) const {
        std::unique_lock lock(end_mutex_);
        end_changed_.wait_until(lock, deadline, [&] { return end_.how != SessionEnd::kNone; });
        return end_;
    }

    void stop() {
        stopping_ = true;
        uplink_->close();
        if (thread_.joinable()) thread_.join();
        std::lock_guard lock(mutex_);
        runtime_ = nullptr;
    }

  private:
    void run() {
        set_thread_name("host-link");
        TimePoint next_heartbeat = Clock::now();
        while (!stopping_ && !uplink_->ended()) {
            if (Clock::now() >= next_heartbeat) {
                send_heartbeat();
                next_heartbeat = after(kHeartbeatSeconds);
            }
            if (const auto message = uplink_->receive(next_heartbeat)) handle(*message);
        }
        if (!stopping_) end(SessionEnd::kLost, "the connection to the launcher has ended");
    }

    void handle(const proto::ToHost& message) {
        switch (message.body_case()) {
            case proto::ToHost::kPeers: return handle_peers(message.peers());
            case proto::ToHost::kAdd: return handle_add(message.add());
            case proto::ToHost::kAbort:
                if (HostRuntime* host = runtime()) host->abort(message.abort().id());
                return;
            case proto::ToHost::kMetrics: return send_metrics(message.metrics().query());
            case proto::ToHost::kFlush:
                if (HostRuntime* host = runtime()) host->flush_cache(message.flush().query());
                return;
            case proto::ToHost::kShutdown: return end(SessionEnd::kShutdown, "told to shut down");
            case proto::ToHost::kRefused:
                return end(SessionEnd::kRefused, message.refused().why());
            case proto::ToHost::BODY_NOT_SET: return;
        }
    }

    void handle_peers(const proto::PeerTable& table) {
        std::vector<Peer> peers;
        for (const proto::Peer& peer : table.peers()) {
            peers.push_back(
                {peer.node(), peer.epoch(), peer.fabric_address(), peer.dead_epoch()});
        }
        peers_->peers(peers);
    }

    void handle_add(const proto::AddRequest& add) {
        if (HostRuntime* host = runtime()) return host->add(from_proto(add));
        emit({aborted(add.id(),
                      fmt::format("host node-{} has not loaded its weights", identity_.node))});
    }

    void send_join() {
        proto::FromHost message;
        proto::Join& join = *message.mutable_join();
        join.set_node(identity_.node);
        join.set_epoch(identity_.epoch);
        join.set_version(identity_.version);
        join.set_config_fingerprint(identity_.config_fingerprint);
        join.set_model_fingerprint(identity_.model_fingerprint);
        join.set_fabric_address(identity_.fabric_address);
        join.set_pid(getpid());
        uplink_->send(std::move(message));
    }

    // With mutex_ held, so that a later state never overtakes an earlier one.
    void send_ready() {
        proto::FromHost message;
        for (const ReachedPeer& peer : reached_) {
            auto& reached = *message.mutable_ready()->add_reached();
            reached.set_node(peer.node);
            reached.set_epoch(peer.epoch);
        }
        message.mutable_ready()->set_loaded(runtime_ != nullptr);
        uplink_->send(std::move(message));
    }

    void send_heartbeat() {
        proto::FromHost message;
        message.mutable_heartbeat()->set_sequence(++heartbeats_);
        if (HostRuntime* host = runtime()) {
            const std::vector<double> idle = host->rank_idle_seconds();
            message.mutable_heartbeat()->mutable_rank_idle_seconds()->Assign(idle.begin(),
                                                                             idle.end());
        }
        uplink_->send(std::move(message));
    }

    void send_metrics(uint64_t query) {
        proto::FromHost message;
        message.mutable_metrics()->set_query(query);
        if (HostRuntime* host = runtime()) {
            for (const metrics::Family& family : host->metrics()) {
                write_family(family, *message.mutable_metrics()->add_families());
            }
        }
        uplink_->send(std::move(message));
    }

    // The first end stands: a shutdown is followed by the end of the connection.
    void end(SessionEnd how, std::string why) {
        {
            std::lock_guard lock(end_mutex_);
            if (end_.how != SessionEnd::kNone) return;
            end_ = {how, std::move(why)};
        }
        end_changed_.notify_all();
    }

    HostRuntime* runtime() {
        std::lock_guard lock(mutex_);
        return runtime_;
    }

    const HostIdentity identity_;
    const std::unique_ptr<Uplink> uplink_;
    PeerListener* peers_ = nullptr;
    std::thread thread_;
    std::atomic<bool> stopping_{false};
    uint64_t heartbeats_ = 0;

    std::mutex mutex_;
    HostRuntime* runtime_ = nullptr;
    std::vector<ReachedPeer> reached_;

    mutable std::mutex end_mutex_;
    mutable std::condition_variable end_changed_;
    End end_;
};

HostLink::HostLink(HostIdentity identity, std::unique_ptr<Uplink> uplink)
    : impl_(std::make_unique<Impl>(std::move(identity), std::move(uplink))) {}
HostLink::~HostLink() { stop(); }

void HostLink::start(PeerListener& peers) { impl_->start(peers); }
void HostLink::loaded(HostRuntime& runtime) { impl_->loaded(runtime); }
void HostLink::report_reached(std::vector<ReachedPeer> reached) {
    impl_->report_reached(std::move(reached));
}
void HostLink::report_failed(const std::string& rank, const std::string& why) {
    impl_->report_failed(rank, why);
}
void HostLink::emit(std::vector<TokenOut> tokens) { impl_->emit(tokens); }
void HostLink::flushed(uint64_t query, const std::string& why) { impl_->flushed(query, why); }
HostLink::End HostLink::wait_end(TimePoint deadline) const { return impl_->wait_end(deadline); }
void HostLink::stop() { impl_->stop(); }

}  // namespace aerie::control
