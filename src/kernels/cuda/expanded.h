// The steps of attention with keys and values per head, one after the other for each piece of an
// ExpandPlan. Shapes are those of the kernel: keys of 128 + 64, values of 128 columns.
#pragma once

#include "kernels/cuda/expand_plan.h"
#include "tensor/stream.h"
#include "tensor/view.h"

namespace aerie::kernels::cuda {

// The latents and rotated keys of a piece's tokens [num_tokens, width], out of their pages.
// segments and page_table are the card's.
struct GatherLatents {
    const void* kv_layer = nullptr;  // [num_blocks, page_size, width] bfloat16
    int page_size = 64;
    const ExpandPlan::Segment* segments = nullptr;
    int num_segments = 0;
    const int32_t* page_table = nullptr;
    View out;
};
void gather_latents(Stream& stream, const GatherLatents& args);

// Attention of tiles of rows over a piece.
struct AttendTiles {
    ConstView q;     // [rows, heads · 192], the last 64 of a head rotated
    ConstView kv;    // [num_tokens, heads · 256]: of each head keys, then values
    ConstView k_pe;  // [num_tokens, 64], rotated
    const ExpandPlan::Tile* tiles = nullptr;  // the card's
    int num_tiles = 0;
    int heads = 1;
    bool causal = true;
    float scale = 1.0f;
    View out;              // [rows, heads · 128]
    float* lse = nullptr;  // [rows, heads] log2 of the sum of exp2(scores)
};
void attend_tiles(Stream& stream, const AttendTiles& args);

// out = both results of the rows, by what each saw; lse = that of both. All views have the rows
// that are joined alone.
struct JoinResults {
    View out;              // [rows, heads · 128]
    float* lse = nullptr;  // [rows, heads]
    ConstView other;
    const float* other_lse = nullptr;
    int heads = 1;
};
void join_results(Stream& stream, const JoinResults& args);

}  // namespace aerie::kernels::cuda
