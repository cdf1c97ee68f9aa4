// MlaStep on the card: the plans of both forms of attention, and the memory that each needs.
#pragma once

#include <cuda_runtime.h>

#include <optional>

#include "kernels/attention.h"
#include "kernels/cuda/expand_plan.h"
#include "kernels/cuda/mla_plan.h"
#include "tensor/pinned_buffer.h"
#include "tensor/tensor.h"

namespace aerie::kernels {

struct MlaStep::Impl {
    Impl(const Limits& limits, const Shape& shape);
    ~Impl();

    const Shape shape;
    cuda::MlaPlan plan;
    cuda::MlaPlan::Layout layout;       // num_teams 0: no row is absorbed
    Buffer ints, partial, partial_lse;  // the card's

    struct Expanded {
        Expanded(const Limits& limits, const Shape& shape);

        cuda::ExpandPlan plan;
        Buffer ints;     // the card's
        Tensor latents;  // [piece_tokens, 576] a piece's
        Tensor kv;       // [piece_tokens, heads · 256] its keys and values
        Tensor other;  // [max_rows, heads · 128] what rows found in a piece that is not their first
        Tensor lse;    // [max_rows, heads] f32
        Tensor other_lse;  // likewise
    };
    std::optional<Expanded> expanded;

    // Two, so that one step is planned while the copy of the one before is still in the queue.
    struct Staging {
        PinnedBuffer ints, expanded_ints;
        cudaEvent_t sent = nullptr;
    } staging[2];
    int turn = 0;
};

namespace cuda {

void absorbed_attention(Stream& stream, const MlaArgs& args);
void expanded_attention(Stream& stream, const MlaArgs& args);

}  // namespace cuda
}  // namespace aerie::kernels
