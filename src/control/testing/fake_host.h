// Hosts without a model, for tests: a runtime that echoes prompts, and peers that are reached at
// once.
#pragma once

#include <atomic>
#include <set>

#include "config/placement.h"
#include "control/host_link.h"
#include "control/host_runtime.h"

namespace aerie::control {

// A prompt's first token says what happens to it at its decode leader; the others are echoed.
constexpr int32_t kEcho = 1;      // each as a token of its own, then kStop
constexpr int32_t kHold = 2;      // as kEcho, but without the end
constexpr int32_t kSilent = 3;    // nothing
constexpr int32_t kStickRank = 4; // no token; its rank counts as stuck from now on
constexpr int32_t kFail = 5;      // the prefill leader gives it up
// A host does not flush while requests run there.

class FakeRuntime final : public HostRuntime {
  public:
    FakeRuntime(const Placement& placement, int node, TokenSink& sink);

    void add(const Request& request) override;
    void abort(RequestId id) override;
    void flush_cache(uint64_t query) override;
    void peers_changed() override { ++num_peer_changes; }
    metrics::Snapshot metrics() override;
    std::vector<double> rank_idle_seconds() override { return {stuck_ ? 1e6 : 0.0}; }
    void stop() override {}

    std::atomic<int> num_peer_changes{0};
    std::atomic<int> num_aborts{0};

  private:
    const Placement& placement_;
    const int node_;
    TokenSink& sink_;
    std::set<RequestId> running_;
    int num_added_ = 0;
    bool stuck_ = false;
};

// Takes every live peer for reached.
class FakePeers final : public PeerListener {
  public:
    explicit FakePeers(HostLink& link) : link_(link) {}
    void peers(const std::vector<Peer>& peers) override;

  private:
    HostLink& link_;
};

// What every test process agrees on.
constexpr const char* kFakeVersion = "test";
constexpr uint64_t kFakeConfigFingerprint = 11, kFakeModelFingerprint = 12;
HostIdentity fake_identity(int node, uint32_t epoch);

// node-0: prefill, node-1: decode, node-2: experts.
Placement fake_placement();

}  // namespace aerie::control
