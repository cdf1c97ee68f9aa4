// CardExperts: an expert rank's arithmetic on a card: rows that mailboxes brought go there through
// pinned host memory, on a queue of their own, and what the experts make of them comes back.
//
// One caller at a time.
#pragma once

#include <cstdint>
#include <span>

#include "exchange/expert_side.h"
#include "kernels/experts.h"
#include "tensor/pinned_buffer.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace aerie::expert {

struct CardExpertsOptions {
    int num_experts = 0;
    int first_expert = 0;  // model's number of the first
    int hidden = 0;
    int topk = 0;
    int64_t max_rows = 0;         // of a group
    bool quantises_rows = false;  // tensor/stream.h
    // Of one layer, stacked; all are of its shape. A group of max_rows is computed with it once, so that
    // nothing is allocated afterwards.
    const kernels::ExpertWeights* largest = nullptr;
};

class CardExperts {
  public:
    explicit CardExperts(const CardExpertsOptions& options);

    // The group, all of one layer with these stacked experts, into the side's outputs; complete when it
    // returns.
    void compute(std::span<const exchange::Waiting> group, const kernels::ExpertWeights& experts,
                 exchange::ExpertSide& side);

  private:
    void stage(const exchange::Waiting& waiting, int64_t first_row);
    void run(int64_t num_rows, const kernels::ExpertWeights& experts);

    const CardExpertsOptions options_;
    Stream stream_{nullptr, Device::kCuda};
    PinnedBuffer rows_, ids_, weights_, results_;  // [max_rows, hidden], [max_rows, topk] twice
    Tensor rows_on_card_, ids_on_card_, weights_on_card_, results_on_card_;
};

}  // namespace aerie::expert
