// The routed experts of one layer on one rank.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/linear.h"
#include "tensor/stream.h"
#include "tensor/view.h"

namespace aerie::kernels {

struct ExpertWeights {
    LinearWeight gate_up;  // [2·I, hidden], gate above up
    LinearWeight down;     // [hidden, I]
};

struct ExpertChoice {
    int32_t expert = 0;  // local index
    float weight = 0.0f;
};

// Memory that calls reuse; grows to the largest call and stays. One call at a time.
class ExpertWorkspace {
  public:
    ExpertWorkspace();
    ~ExpertWorkspace();
    ExpertWorkspace(ExpertWorkspace&&) noexcept;
    ExpertWorkspace& operator=(ExpertWorkspace&&) noexcept;

    struct Impl;
    Impl& impl() { return *impl_; }

  private:
    std::unique_ptr<Impl> impl_;
};

// out[r] = Σ weight · down(silu(gate(x[r])) · up(x[r])) over the choices of row r in ascending
// expert (whatever their order in the list; one expert at most once a row), added in fp32 and
// rounded once to out's type. gate_up's result and the product silu · up are rounded to the compute
// type, down's result is not rounded. A row without choices gives 0.
struct ExpertArgs {
    ConstView x;                            // [R, hidden] compute type
    const int32_t* offsets = nullptr;       // [R + 1] into choices
    const ExpertChoice* choices = nullptr;  // [offsets[R]]
    std::span<const ExpertWeights> experts;
    View out;  // [R, hidden] float32 or compute type; does not overlap x
    ExpertWorkspace* workspace = nullptr;
};
void expert_ffn(Stream& stream, const ExpertArgs& args);

// The card's form of it, straight from the gate's result, without a look at it by the host. Of each row's
// choices those in [first_expert, first_expert + num_experts) count. The weights of all experts are
// stacked: gate_up [num_experts · 2·I, hidden], each expert's gate above its up, and down
// [num_experts · hidden, I].
struct RoutedArgs {
    ConstView x;                     // [R, hidden] bfloat16
    const int32_t* ids = nullptr;    // [R, top_k] experts of the model
    const float* weights = nullptr;  // [R, top_k]
    int top_k = 1;
    int first_expert = 0;
    int num_experts = 1;
    const ExpertWeights* experts = nullptr;
    View out;  // [R, hidden] float32 or bfloat16; does not overlap x
};
void routed_ffn(Stream& stream, const RoutedArgs& args);

// One such network for all rows, without weights: the shared expert, and dense layers. out is
// rounded once. The same arithmetic as above with weight 1.
void dense_ffn(Stream& stream, ConstView x, const ExpertWeights& weights, View out,
               ExpertWorkspace& workspace);

}  // namespace aerie::kernels
