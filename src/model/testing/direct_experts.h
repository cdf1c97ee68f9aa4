// DirectExperts: an AttentionSide whose experts are computed on the spot, without mailboxes. The
// arithmetic is the exchange's: each expert rank rounds its rows to the compute type, and rows are
// added in ascending rank.
#pragma once

#include <cstdint>
#include <vector>

#include "exchange/attention_side.h"
#include "kernels/experts.h"
#include "model/expert_weights.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace aerie::model {

class DirectExperts : public exchange::AttentionSide {
  public:
    // ranks: the expert ranks, in order; together they hold every expert. They outlive this.
    DirectExperts(std::vector<const RoutedExperts*> ranks, Stream* stream)
        : ranks_(std::move(ranks)), stream_(stream) {}

    Status dispatch(const exchange::Dispatch& dispatch) override;
    Status combine(int slot, View sum) override;
    void reset() override;

    // A planted fault: what this expert of this layer would add is lost.
    void drop_expert(int layer, int expert) { dropped_layer_ = layer, dropped_expert_ = expert; }
    // Fails the n-th dispatch from now, counted from 0.
    void fail_dispatch(int n) { fail_in_ = n; }

  private:
    std::vector<const RoutedExperts*> ranks_;
    Stream* stream_;
    std::vector<Tensor> results_[3];  // [slot][expert rank] rows in the compute type
    kernels::ExpertWorkspace workspace_;
    int dropped_layer_ = -1;
    int dropped_expert_ = -1;
    int fail_in_ = -1;
};

}  // namespace aerie::model
