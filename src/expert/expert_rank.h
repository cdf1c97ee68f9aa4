// ExpertRank: the expert side's loop: take what waits, compute it together, answer. It holds no
// request state; whoever dispatched keeps what it needs to send again.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "exchange/expert_side.h"
#include "expert/card_experts.h"
#include "kernels/experts.h"
#include "metrics/components.h"
#include "tensor/stream.h"

namespace aerie::expert {

struct ExpertRankOptions {
    exchange::ExpertSideOptions side;
    ThreadPool* pool = nullptr;
    // [layers]: this rank's experts of each layer; empty for a layer without any.
    std::vector<std::span<const kernels::ExpertWeights>> layers;
    int first_expert = 0;                    // model's number of the first
    // On a card, where a layer's experts are stacked as one: what they are computed with; else empty.
    std::optional<CardExpertsOptions> card;
    metrics::ExpertMetrics metrics;
};

class ExpertRank {
  public:
    explicit ExpertRank(ExpertRankOptions options);

    // The loop, until stop(): one thread.
    void run();
    void stop();  // any thread

    // Computes one group if one waits and nobody else is at it; tells whether it did. Any thread.
    bool step();
    // The same for an attention rank of this process that waits. What came meanwhile from others, who
    // found the rank busy, is left to the loop.
    bool help();

    // Seconds since the loop last went round, for the watchdog.
    double idle_seconds() const;

  private:
    bool has_experts(int layer) const;
    void gather(std::span<const exchange::Waiting> group);
    void compute(std::span<const exchange::Waiting> group);
    void answer(std::span<const exchange::Waiting> group);
    void count(std::span<const exchange::Waiting> group, double seconds);

    ExpertRankOptions options_;
    std::unique_ptr<exchange::ExpertSide> side_;
    Stream stream_;

    std::mutex step_mutex_;  // who computes
    std::unique_ptr<CardExperts> card_;  // null on a CPU, which has the rest
    kernels::ExpertWorkspace workspace_;
    Scratch rows_;           // [rows, hidden] of a group of several microbatches
    Scratch results_;        // [rows, hidden]
    std::vector<int32_t> offsets_;
    std::vector<kernels::ExpertChoice> choices_;
    int rows_total_ = 0;
    TimePoint last_busy_ = Clock::now();

    std::atomic<bool> stopping_{false};
    std::atomic<int64_t> last_round_ns_{0};
};

}  // namespace aerie::expert
