#include "control/testing/fake_host.h"

#include "request/convert.h"


namespace aerie::control {

FakeRuntime::FakeRuntime(const Placement& placement, int node, TokenSink& sink)
    : placement_(placement), node_(node), sink_(sink) {}

void FakeRuntime::add(const Request& request) {
    ++num_added_;
    const auto node_of = [&](const std::vector<int>& replicas, int index) {
        return placement_.replicas[replicas[index]].node;
    };
    const int32_t what = request.prompt[0];
    if (what == kFail && node_ == node_of(placement_.prefill_replicas(), request.prefill_replica)) {
        return sink_.emit({aborted(request.id, "the prefill leader gave it up")});
    }
    if (node_ != node_of(placement_.decode_replicas(), request.decode_replica)) return;
    running_.insert(request.id);
    if (what == kStickRank) stuck_ = true;
    if (what != kEcho && what != kHold) return;
    for (size_t i = 1; i < request.prompt.size(); ++i) {
        TokenOut token;
        token.id = request.id;
        token.position = static_cast<int>(i) - 1;
        token.tokens = {request.prompt[i]};
        if (what == kEcho && i + 1 == request.prompt.size()) token.finish = FinishReason::kStop;
        sink_.emit({token});
    }
}

void FakeRuntime::abort(RequestId id) {
    ++num_aborts;
    running_.erase(id);
}

void FakeRuntime::flush_cache(uint64_t query) {
    for (const AttentionReplica& replica : placement_.replicas) {
        if (replica.node != node_) continue;
        sink_.flushed(query, running_.empty() ? "" : fmt::format("{} requests run", running_.size()));
    }
}

metrics::Snapshot FakeRuntime::metrics() {
    const metrics::Sample sample{.value = static_cast<double>(num_added_)};
    return {{.name = "fake_requests_total", .help = "Requests.", .samples = {sample}}};
}

void FakePeers::peers(const std::vector<Peer>& peers) {
    std::vector<ReachedPeer> reached;
    for (const Peer& peer : peers) {
        if (peer.epoch != 0) reached.push_back({peer.node, peer.epoch});
    }
    link_.report_reached(std::move(reached));
}

HostIdentity fake_identity(int node, uint32_t epoch) {
    return {.node = node,
            .epoch = epoch,
            .version = kFakeVersion,
            .config_fingerprint = kFakeConfigFingerprint,
            .model_fingerprint = kFakeModelFingerprint,
            .fabric_address = "address of node " + std::to_string(node)};
}

Placement fake_placement() {
    Config config;
    config.cluster.nodes = 3;
    config.ae_separation.enabled = true;
    config.ae_separation.prefill_nodes = {"node-0"};
    config.ae_separation.decode_attention_nodes = {"node-1"};
    config.ae_separation.decode_nodes = {"node-2"};
    config.ae_separation.decode_tp = config.ae_separation.decode_cp = 1;
    return place(config);
}

}  // namespace aerie::control
