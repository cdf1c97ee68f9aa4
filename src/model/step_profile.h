// StepProfile: where the time of steps goes, for benchmarks. Filled by an AttentionRank that is given
// one; without one, steps read no clock for it.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace aerie::model {

enum class StepOp : uint8_t {
    kEmbed,
    kProjectDown,  // q_a, kv_a, their norms, rope of k_pe
    kGather,       // waits for the replica's other ranks included
    kWriteKv,
    kQueries,      // q_b
    kAbsorb,       // W_UK, rope of q_pe
    kAttention,
    kMergeCp,
    kValues,       // W_UV
    kOutput,       // o_proj
    kResidual,     // add, norm; of attention and of the FFN
    kGate,
    kDispatch,
    kLocalFfn,     // shared expert, dense MLP
    kCombine,
    kLogits,
    kCount,
};

inline const char* name_of(StepOp op) {
    static constexpr const char* kNames[] = {
        "embed", "q_a + kv_a", "gather", "write KV", "q_b",      "W_UK + rope", "attention", "merge cp",
        "W_UV",  "o_proj",     "residual", "gate",   "dispatch", "shared, dense", "combine", "LM head"};
    static_assert(sizeof kNames / sizeof *kNames == static_cast<int>(StepOp::kCount));
    return kNames[static_cast<int>(op)];
}

struct StepProfile {
    double seconds[static_cast<int>(StepOp::kCount)] = {};

    void begin() { last_ = Clock::now(); }
    // What has passed since begin() or the last call was spent on `op`.
    void end_of(StepOp op) {
        const TimePoint now = Clock::now();
        seconds[static_cast<int>(op)] += seconds_between(last_, now);
        last_ = now;
    }

  private:
    TimePoint last_;
};

}  // namespace aerie::model
