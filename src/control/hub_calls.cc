// The calls that come from outside the hub's thread: requests, start, stop, metrics.
#include "base/log.h"
#include "control/hub_impl.h"
#include "control/metric_messages.h"
#include "request/convert.h"

namespace aerie::control {

Result<int> Hub::Impl::replica_node(const char* role, const std::vector<int>& replicas,
                                    int index) const {
    if (index < 0 || index >= static_cast<int>(replicas.size())) {
        return error("{} replica {} does not exist, expected 0 to {}", role, index,
                     replicas.size() - 1);
    }
    const int node = placement_.replicas[replicas[index]].node;
    if (!membership_.live(node)) {
        return error("host {} is down; it is being started again", label(node));
    }
    return node;
}

Status Hub::Impl::add(const Request& request) {
    proto::ToHost message;
    to_proto(request, *message.mutable_add());
    std::lock_guard lock(mutex_);
    if (stopping_) return error("the server is stopping");
    const auto prefill = replica_node("prefill", prefill_replicas_, request.prefill_replica);
    if (!prefill) return prefill.error();
    const auto decode = replica_node("decode", decode_replicas_, request.decode_replica);
    if (!decode) return decode.error();
    if (unified_ && request.prefill_replica != request.decode_replica) {
        return error("request {} names replicas {} and {}, expected one: each does both roles",
                     request.id, request.prefill_replica, request.decode_replica);
    }
    const RunningRequest running{request.id, prefill.value(), decode.value()};
    if (!requests_.add(running)) return error("request {} runs already", request.id);
    send(running.prefill_node, message);
    if (running.decode_node != running.prefill_node) send(running.decode_node, message);
    return {};
}

void Hub::Impl::abort(RequestId id) {
    std::lock_guard lock(mutex_);
    const RunningRequest* request = requests_.find(id);
    if (request == nullptr) return;
    send_abort(*request, -1);
    requests_.erase(id);
    changed_.notify_all();
}

EngineState Hub::Impl::state() const {
    std::lock_guard lock(mutex_);
    EngineState state;
    state.unified = unified_;
    state.stopping = stopping_;
    const auto add = [&](const std::vector<int>& replicas, std::vector<ReplicaState>& into) {
        for (int i = 0; i < static_cast<int>(replicas.size()); ++i) {
            const int node = placement_.replicas[replicas[i]].node;
            into.push_back({.replica = i,
                            .node = node,
                            .live = membership_.live(node),
                            .epoch = membership_.epoch(node)});
        }
    };
    add(prefill_replicas_, state.prefill);
    add(decode_replicas_, state.decode);
    for (const ExpertCopy& copy : placement_.copies) {
        bool complete = true;
        for (const int rank : copy.ranks) {
            complete = complete && membership_.live(placement_.experts[rank].node);
        }
        state.expert_copy_complete.push_back(complete);
    }
    return state;
}

uint64_t Hub::Impl::opened(std::shared_ptr<Downlink> downlink) {
    std::lock_guard lock(mutex_);
    const uint64_t session = next_session_++;
    sessions_[session].downlink = std::move(downlink);
    return session;
}

void Hub::Impl::fail_start(const std::string& why) {
    std::lock_guard lock(mutex_);
    if (start_failure_.empty()) start_failure_ = why;
    changed_.notify_all();
}

Error Hub::Impl::start_error(double seconds) const {
    const int node = membership_.first_missing();
    const std::string address = node < static_cast<int>(options_.addresses.size())
                                    ? options_.addresses[node]
                                    : "an unknown address";
    return error("the hosts are not complete after {:.0f} s: {}; {} was expected at {}", seconds,
                 membership_.missing(), label(node), address);
}

Status Hub::Impl::wait_started(double join_limit_s, double load_limit_s) {
    constexpr double kReportSeconds = 10;
    const TimePoint start = Clock::now();
    TimePoint report = after(kReportSeconds);
    std::unique_lock lock(mutex_);
    // Waits for one stage after the other; each has its own limit.
    const auto wait = [&](auto done, double limit_s) -> Status {
        const TimePoint deadline = after(limit_s);
        while (!done()) {
            if (!start_failure_.empty()) return error("{}", start_failure_);
            if (Clock::now() >= deadline) return start_error(seconds_since(start));
            if (Clock::now() >= report) {
                log_info("waiting for hosts, {:.0f} s: {}", seconds_since(start),
                         membership_.missing());
                report = after(kReportSeconds);
            }
            changed_.wait_until(lock, std::min(deadline, report));
        }
        return {};
    };
    RETURN_IF_ERROR(wait([&] { return membership_.all_joined(); }, join_limit_s));
    RETURN_IF_ERROR(wait([&] { return membership_.all_loaded(); }, load_limit_s));
    RETURN_IF_ERROR(wait([&] { return membership_.all_live(); }, join_limit_s));
    return {};
}

void Hub::Impl::stop_accepting() {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (start_failure_.empty()) start_failure_ = "stopped while starting";
    changed_.notify_all();
}

bool Hub::Impl::drain(double limit_s) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, after(limit_s), [&] { return requests_.size() == 0; });
}

bool Hub::Impl::wait_sessions_closed(std::unique_lock<std::mutex>& lock, const std::set<int>& nodes,
                                     double limit_s) {
    return changed_.wait_until(lock, after(limit_s), [&] {
        for (const int node : nodes) {
            if (membership_.joined(node)) return false;
        }
        return true;
    });
}

void Hub::Impl::shut_down_hosts(double limit_s) {
    std::unique_lock lock(mutex_);
    stopping_ = shutting_down_ = true;
    for (const bool attention : {true, false}) {
        std::set<int> nodes;
        proto::ToHost message;
        message.mutable_shutdown();
        for (int node = 0; node < membership_.num_nodes(); ++node) {
            if (!membership_.joined(node) || membership_.has_attention(node) != attention) continue;
            nodes.insert(node);
            send(node, message);
        }
        if (wait_sessions_closed(lock, nodes, limit_s)) continue;
        log_warning("hosts did not shut down within {:g} s", limit_s);
    }
}

void Hub::Impl::make_metrics() {
    if (options_.registry == nullptr) return;
    host_metrics_.resize(membership_.num_nodes());
    for (int node = 0; node < membership_.num_nodes(); ++node) {
        for (const Role role : {Role::kPrefill, Role::kDecode, Role::kUnified, Role::kExpert}) {
            if (!placement_.has_role(node, role)) continue;
            host_metrics_[node].emplace_back(*options_.registry, node, name_of(role));
        }
    }
}

void Hub::Impl::show_live() {
    for (size_t node = 0; node < host_metrics_.size(); ++node) {
        for (const metrics::HostMetrics& host : host_metrics_[node]) {
            host.up.set(membership_.live(static_cast<int>(node)) ? 1 : 0);
        }
    }
}

void Hub::Impl::handle_metrics(int node, const proto::MetricsReply& reply) {
    const auto query = queries_.find(reply.query());
    if (query == queries_.end() || query->second.pending.erase(node) == 0) return;
    metrics::Snapshot& snapshot = query->second.snapshots.emplace_back();
    for (const proto::MetricFamily& family : reply.families()) {
        snapshot.push_back(read_family(family));
    }
}

std::string Hub::Impl::collect_metrics(double limit_s) {
    std::unique_lock lock(mutex_);
    const uint64_t id = next_query_++;
    MetricsQuery& query = queries_[id];
    proto::ToHost message;
    message.mutable_metrics()->set_query(id);
    for (int node = 0; node < membership_.num_nodes(); ++node) {
        if (!membership_.joined(node)) continue;
        query.pending.insert(node);
        send(node, message);
    }
    changed_.wait_until(lock, after(limit_s), [&] { return query.pending.empty(); });
    std::vector<metrics::Snapshot> snapshots = std::move(query.snapshots);
    queries_.erase(id);
    lock.unlock();
    if (options_.registry != nullptr) snapshots.push_back(options_.registry->collect());
    return metrics::to_text(metrics::merge(snapshots));
}

void Hub::Impl::handle_flushed(int node, const proto::FlushReply& reply) {
    const auto query = flushes_.find(reply.query());
    if (query == flushes_.end()) return;
    const auto pending = query->second.pending.find(node);
    if (pending == query->second.pending.end()) return;
    if (--pending->second == 0) query->second.pending.erase(pending);
    if (query->second.refusal.empty()) query->second.refusal = reply.why();
}

Status Hub::Impl::flush_cache(double limit_s) {
    std::unique_lock lock(mutex_);
    const uint64_t id = next_query_++;
    FlushQuery& query = flushes_[id];
    for (const AttentionReplica& replica : placement_.replicas) {
        if (membership_.live(replica.node)) ++query.pending[replica.node];
    }
    proto::ToHost message;
    message.mutable_flush()->set_query(id);
    for (const auto& [node, count] : query.pending) send(node, message);
    changed_.wait_until(lock, after(limit_s), [&] { return query.pending.empty(); });
    const FlushQuery answer = std::move(query);
    flushes_.erase(id);
    if (!answer.refusal.empty()) return error("{}", answer.refusal);
    if (answer.pending.empty()) return {};
    return error("host {} has not answered within {:g} s", label(answer.pending.begin()->first),
                 limit_s);
}

}  // namespace aerie::control
