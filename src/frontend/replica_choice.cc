#include "frontend/replica_choice.h"

#include <vector>

namespace aerie::frontend {
namespace {

// -1 where none is live.
int least_busy(const std::vector<control::ReplicaState>& replicas,
               const std::map<int, int>& num_in_flight) {
    int best = -1, best_count = 0;
    for (const control::ReplicaState& replica : replicas) {
        if (!replica.live) continue;
        const auto found = num_in_flight.find(replica.replica);
        const int count = found == num_in_flight.end() ? 0 : found->second;
        if (best < 0 || count < best_count) {
            best = replica.replica;
            best_count = count;
        }
    }
    return best;
}

}  // namespace

Result<ReplicaChoice::Pair> ReplicaChoice::take(const control::EngineState& state,
                                                int num_requests) {
    std::lock_guard lock(mutex_);
    Pair pair;
    pair.decode = least_busy(state.decode, num_decode_);
    pair.prefill = state.unified ? pair.decode : least_busy(state.prefill, num_prefill_);
    if (pair.prefill < 0) return error("no prefill host is live");
    if (pair.decode < 0) return error("no decode host is live");
    num_prefill_[pair.prefill] += num_requests;
    num_decode_[pair.decode] += num_requests;
    return pair;
}

void ReplicaChoice::release(const Pair& pair, int num_requests) {
    std::lock_guard lock(mutex_);
    num_prefill_[pair.prefill] -= num_requests;
    num_decode_[pair.decode] -= num_requests;
}

}  // namespace aerie::frontend
