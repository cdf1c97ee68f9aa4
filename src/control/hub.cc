#include "control/hub.h"

#include "base/log.h"
#include "base/thread.h"
#include "control/hub_impl.h"
#include "request/convert.h"

namespace aerie::control {
namespace {

constexpr double kTickSeconds = 0.5;
constexpr double kJoinSeconds = 10;   // a connection that has not joined by then is closed
constexpr double kRefusedSeconds = 2; // a refused host ends its session by then

HostIdentity identity_of(const proto::Join& join) {
    return {.node = join.node(),
            .epoch = join.epoch(),
            .version = join.version(),
            .config_fingerprint = join.config_fingerprint(),
            .model_fingerprint = join.model_fingerprint(),
            .fabric_address = join.fabric_address()};
}

}  // namespace

Hub::Impl::Impl(const Placement& placement, HubOptions options)
    : placement_(placement),
      prefill_replicas_(placement.prefill_replicas()),
      decode_replicas_(placement.decode_replicas()),
      unified_(prefill_replicas_ == decode_replicas_),
      options_(std::move(options)),
      membership_(placement, options_.identity) {
    make_metrics();
    thread_ = std::thread([this] { run(); });
}

Hub::Impl::~Impl() {
    events.close();
    thread_.join();
}

void Hub::Impl::run() {
    set_thread_name("hub");
    TimePoint next_tick = after(kTickSeconds);
    while (!events.finished()) {
        if (auto event = events.pop(next_tick)) handle(*event);
        if (Clock::now() >= next_tick) {
            check_silence();
            next_tick = after(kTickSeconds);
        }
        deliver();
    }
}

void Hub::Impl::handle(Event& event) {
    std::lock_guard lock(mutex_);
    if (auto* message = std::get_if<Message>(&event)) {
        handle_message(message->session, message->body);
    } else if (auto* closed = std::get_if<Closed>(&event)) {
        const auto session = sessions_.find(closed->session);
        const int node = session->second.node;
        sessions_.erase(session);
        if (node >= 0 && membership_.session(node) == closed->session) lose(node, closed->why, true);
    } else if (auto* died = std::get_if<Died>(&event)) {
        if (membership_.joined(died->node) && membership_.epoch(died->node) == died->epoch) {
            lose(died->node, died->why, false);
        }
    } else if (auto* all = std::get_if<AbortAll>(&event)) {
        end_requests(requests_.take_all(), -1, all->why);
    }
    show_live();
    changed_.notify_all();
}

void Hub::Impl::handle_message(uint64_t session_id, proto::FromHost& message) {
    Session& session = sessions_.at(session_id);
    session.heard_at = Clock::now();
    if (message.has_join()) {
        if (session.node < 0 && !session.refused) handle_join(session_id, session, message.join());
        return;
    }
    const int node = session.node;
    if (node < 0 || membership_.session(node) != session_id) return;  // a dead life's last words
    switch (message.body_case()) {
        case proto::FromHost::kReady: return handle_ready(node, message.ready());
        case proto::FromHost::kHeartbeat: return handle_heartbeat(node, message.heartbeat());
        case proto::FromHost::kTokens: return handle_tokens(node, message.tokens());
        case proto::FromHost::kMetrics: return handle_metrics(node, message.metrics());
        case proto::FromHost::kFlushed: return handle_flushed(node, message.flushed());
        case proto::FromHost::kRankFailed: {
            const std::string why = fmt::format("{} cannot go on: {}", message.rank_failed().rank(),
                                                message.rank_failed().why());
            if (start_failure_.empty()) {  // another try would end the same way
                start_failure_ = fmt::format("host {} could not start: {}", label(node), why);
            }
            return lose(node, why, true);
        }
        default: return;
    }
}

void Hub::Impl::handle_ready(int node, const proto::Ready& ready) {
    std::vector<ReachedPeer> reached;
    for (const auto& peer : ready.reached()) reached.push_back({peer.node(), peer.epoch()});
    std::vector<bool> was_live(membership_.num_nodes());
    for (int n = 0; n < membership_.num_nodes(); ++n) was_live[n] = membership_.live(n);
    const bool was_loaded = membership_.loaded(node);
    membership_.ready(node, ready.loaded(), std::move(reached));
    if (membership_.loaded(node) != was_loaded) broadcast_peers();
    for (int n = 0; n < membership_.num_nodes(); ++n) {
        if (membership_.live(n) && !was_live[n]) log_info("host {} is ready", label(n));
    }
}

void Hub::Impl::handle_join(uint64_t session_id, Session& session, const proto::Join& join) {
    const HostIdentity host = identity_of(join);
    if (const Status may = membership_.check(host); !may) {
        log_error("a host was refused: {}", may.message());
        proto::ToHost refused;
        refused.mutable_refused()->set_why(may.message());
        session.refused = true;
        session.opened_at = Clock::now();
        session.downlink->send(refused);
        return;
    }
    if (membership_.joined(host.node)) lose(host.node, "a later process of the node joins", true);
    session.node = host.node;
    const bool again = membership_.join(host, session_id);
    if (again && !host_metrics_.empty()) host_metrics_[host.node][0].restarts.add();
    log_info("host {} has joined: epoch {}, pid {}", label(host.node), host.epoch, join.pid());
    if (!shutting_down_) return;
    proto::ToHost shutdown;  // the others were told before it came
    shutdown.mutable_shutdown();
    send(host.node, shutdown);
}

void Hub::Impl::handle_tokens(int node, const proto::TokenBatch& batch) {
    for (const proto::TokenOut& token : batch.tokens()) {
        RunningRequest* request = requests_.find(token.id());
        if (request == nullptr || !request->runs_on(node)) continue;  // ended or aborted meanwhile
        out_.push_back(from_proto(token));
        if (node == request->decode_node) request->prefilled = true;
        if (out_.back().finish == FinishReason::kNone) continue;
        // One side may have given the request up without the other knowing.
        if (out_.back().finish == FinishReason::kAbort) send_abort(*request, node);
        requests_.erase(token.id());
    }
}

void Hub::Impl::handle_heartbeat(int node, const proto::Heartbeat& heartbeat) {
    for (int rank = 0; rank < heartbeat.rank_idle_seconds_size(); ++rank) {
        const double idle = heartbeat.rank_idle_seconds(rank);
        if (idle <= options_.watchdog_timeout_s) continue;
        return lose(node,
                    fmt::format("its rank {} has not gone round its loop for {:.1f} s "
                                "(watchdog_timeout is {:g} s)",
                                rank, idle, options_.watchdog_timeout_s),
                    true);
    }
}

void Hub::Impl::check_silence() {
    std::lock_guard lock(mutex_);
    for (auto& [id, session] : sessions_) {
        if (session.node < 0) {
            const double limit = session.refused ? kRefusedSeconds : kJoinSeconds;
            if (seconds_since(session.opened_at) > limit) session.downlink->cancel();
            continue;
        }
        const double silent = seconds_since(session.heard_at);
        if (silent <= options_.heartbeat_timeout_s || membership_.session(session.node) != id) continue;
        lose(session.node, fmt::format("it has sent no heartbeat for {:.1f} s", silent), true);
    }
    show_live();
    changed_.notify_all();
}

void Hub::Impl::lose(int node, const std::string& why, bool kill) {
    const uint32_t epoch = membership_.epoch(node);
    if (const auto session = sessions_.find(membership_.session(node)); session != sessions_.end()) {
        session->second.downlink->cancel();
    }
    membership_.lose(node);
    for (auto& [id, query] : queries_) query.pending.erase(node);
    const auto ended = requests_.take_dependent(node);
    if (shutting_down_) {
        log_info("host {} has ended", label(node));
    } else {
        log_error("host {} is dead (epoch {}): {}; {} of its requests end", label(node), epoch, why,
                  ended.size());
        if (kill) lost_.push_back({node, epoch, why});
    }
    end_requests(ended, node, fmt::format("host {} died while the request ran", label(node)));
    broadcast_peers();
}

void Hub::Impl::end_requests(const std::vector<RunningRequest>& requests, int lost_node,
                             const std::string& why) {
    for (const RunningRequest& request : requests) {
        send_abort(request, lost_node);
        out_.push_back(aborted(request.id, why));
    }
}

void Hub::Impl::broadcast_peers() {
    for (int node = 0; node < membership_.num_nodes(); ++node) {
        if (!membership_.joined(node)) continue;
        proto::ToHost message;
        message.mutable_peers();
        for (const Peer& peer : membership_.peers_of(node)) {
            proto::Peer& into = *message.mutable_peers()->add_peers();
            into.set_node(peer.node);
            into.set_epoch(peer.epoch);
            into.set_fabric_address(peer.fabric_address);
            into.set_dead_epoch(peer.dead_epoch);
        }
        send(node, message);
    }
}

void Hub::Impl::send(int node, const proto::ToHost& message) {
    const auto session = sessions_.find(membership_.session(node));
    if (session != sessions_.end()) session->second.downlink->send(message);
}

void Hub::Impl::send_abort(const RunningRequest& request, int except_node) {
    proto::ToHost message;
    message.mutable_abort()->set_id(request.id);
    if (request.prefill_node != except_node) send(request.prefill_node, message);
    if (request.decode_node != except_node && request.decode_node != request.prefill_node) {
        send(request.decode_node, message);
    }
}

void Hub::Impl::deliver() {
    if (!out_.empty()) {
        std::lock_guard lock(sink_mutex);
        if (sink) sink(std::exchange(out_, {}));
        out_.clear();
    }
    for (const LostHost& host : std::exchange(lost_, {})) {
        if (lost_listener) lost_listener(host.node, host.epoch, host.why);
    }
}

Hub::Hub(const Placement& placement, HubOptions options)
    : impl_(std::make_unique<Impl>(placement, std::move(options))) {}
Hub::~Hub() = default;

Status Hub::add(const Request& request) { return impl_->add(request); }
void Hub::abort(RequestId id) { impl_->abort(id); }
void Hub::set_sink(std::function<void(std::vector<TokenOut>)> sink) {
    std::lock_guard lock(impl_->sink_mutex);
    impl_->sink = std::move(sink);
}
EngineState Hub::state() const { return impl_->state(); }
std::string Hub::collect_metrics(double limit_s) { return impl_->collect_metrics(limit_s); }
Status Hub::flush_cache(double limit_s) { return impl_->flush_cache(limit_s); }

uint64_t Hub::opened(std::shared_ptr<Downlink> downlink) {
    return impl_->opened(std::move(downlink));
}
void Hub::received(uint64_t session, proto::FromHost message) {
    impl_->events.push(Impl::Message{session, std::move(message)});
}
void Hub::closed(uint64_t session, const std::string& why) {
    impl_->events.push(Impl::Closed{session, why});
}

void Hub::on_lost(std::function<void(int, uint32_t, const std::string&)> listener) {
    impl_->lost_listener = std::move(listener);
}
void Hub::host_died(int node, uint32_t epoch, const std::string& why) {
    impl_->events.push(Impl::Died{node, epoch, why});
}
void Hub::fail_start(const std::string& why) { impl_->fail_start(why); }
Status Hub::wait_started(double join_limit_s, double load_limit_s) {
    return impl_->wait_started(join_limit_s, load_limit_s);
}
std::string Hub::label(int node) const { return impl_->label(node); }
void Hub::stop_accepting() { impl_->stop_accepting(); }
bool Hub::drain(double limit_s) { return impl_->drain(limit_s); }
void Hub::abort_all(const std::string& why) { impl_->events.push(Impl::AbortAll{why}); }
void Hub::shut_down_hosts(double limit_s) { impl_->shut_down_hosts(limit_s); }

}  // namespace aerie::control
