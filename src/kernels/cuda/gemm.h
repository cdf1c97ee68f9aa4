// y = x · Wᵀ on the tensor cores, x bfloat16, W bfloat16 or FP8 with a scale for each 128×128
// block, each weight taken as bf16(value · scale): kernels/linear.h's arithmetic.
//
// Order of additions. K is cut into slices of equal length, a multiple of 128.
// Within one the tensor cores add 16 products at a time, in a fixed order, to an fp32 sum that
// begins at 0; the slices' sums are added in order. All of it depends on n and k alone: a row's
// bits depend neither on the other rows nor on their number, nor on which storage the weight has.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/linear.h"
#include "tensor/stream.h"

namespace aerie::kernels::cuda {

inline constexpr int kMaxGemmTasks = 128;  // of one launch

// What the tasks of one launch share. Strides are in elements. x and its rows begin at multiples
// of 16 bytes; k is a multiple of 8 (bfloat16) or 16 (FP8).
struct GemmShape {
    int64_t rows = 0;  // of y
    int64_t n = 0;
    int64_t k = 0;
    int64_t x_stride = 0;
    int64_t y_stride = 0;
    bool w_fp8 = false;
    bool y_bf16 = true;
};
struct GemmTask {
    const void* x = nullptr;
    const void* w = nullptr;
    const float* scales = nullptr;
    void* y = nullptr;
};
void gemm(Stream& stream, const GemmShape& shape, std::span<const GemmTask> tasks,
          const int32_t* x_rows = nullptr);

// The lines (pairs of a row and one of its experts) of one expert that one tile computes.
struct ExpertTile {
    int32_t expert = 0;
    int32_t first_line = 0;
    int32_t num_lines = 0;  // at most the tile's rows
};
// Lines grouped by expert, the grouping being known to the card alone. The task's w and scales are
// those of all experts, [num_experts · n, k]; n is a multiple of 128 where w is FP8.
struct ExpertTiles {
    const ExpertTile* tiles = nullptr;   // of the card, [max_tiles]
    const int32_t* num_tiles = nullptr;  // of the card
    int64_t max_tiles = 0;
    int tile_rows = 8;                // a member of kTileRows
    const int32_t* x_rows = nullptr;  // [lines] row of x; null: line i is row i
};
inline constexpr int kTileRows[] = {8, 16, 32, 64, 128};
void gemm_by_expert(Stream& stream, const GemmShape& shape, const GemmTask& task,
                    const ExpertTiles& tiles);

}  // namespace aerie::kernels::cuda
