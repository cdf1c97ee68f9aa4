// ReplicaChoice: which prefill and which decode replica a prompt goes to.
//
// The rule: of each role, the live replica with the fewest requests in flight, counted from dispatch
// to the end of their last token; the lowest number where several have as few. The choices (n) of
// one prompt go to the same replicas, so that its KV is computed once. Where prefill and decode
// replicas are the same, one is chosen for both.
#pragma once

#include <map>
#include <mutex>

#include "base/result.h"
#include "control/engine_client.h"

namespace aerie::frontend {

// Any thread.
class ReplicaChoice {
  public:
    struct Pair {
        int prefill = 0, decode = 0;
    };
    // Counts `num_requests` in flight on both. The error names the role that no live replica has.
    Result<Pair> take(const control::EngineState& state, int num_requests);
    // Each request once, when it has ended.
    void release(const Pair& pair, int num_requests);

  private:
    std::mutex mutex_;
    std::map<int, int> num_prefill_, num_decode_;  // requests in flight by replica
};

}  // namespace aerie::frontend
