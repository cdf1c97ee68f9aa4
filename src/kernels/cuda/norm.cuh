#pragma once

#include "kernels/cuda/row_io.cuh"

namespace aerie::kernels::cuda {

inline constexpr int kNormThreads = 1024;  // of a block, at most

// 1 / sqrt(mean + eps) of the squares that num_threads threads, whole warps beside each other, have
// summed up, in an order that their number alone tells. Each of the block's has those of kFold, a
// kFold-th of num_threads apart. sums: [32] of those threads. All of the block call it together.
template <int kFold>
__device__ float norm_factor(const float (&squares)[kFold], int64_t cols, float eps, int thread,
                             int num_threads, float* sums) {
#pragma unroll
    for (int f = 0; f < kFold; ++f) {
        float sum = squares[f];
        for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
        if (thread % 32 == 0) sums[(thread + f * (num_threads / kFold)) / 32] = sum;
    }
    __syncthreads();
    float total = thread % 32 < num_threads / 32 ? sums[thread % 32] : 0.0f;
    for (int lane = 16; lane > 0; lane /= 2) total += __shfl_xor_sync(~0u, total, lane);
    return 1.0f / sqrtf(total / static_cast<float>(cols) + eps);
}

// One block a row of `cols`: x = what values(col, v) gives for each group of columns, rounded to
// x's type, then y = rms_norm(x). Without `changes` x is not written, and what it gives are x's
// values. The block has row_grid(1, cols, kWidth, kNormThreads).threads threads, on whose number,
// and so on cols alone, the order of the sum of squares depends; or a kFold-th of them, whole
// warps, of which each does what kFold threads would, with the same bits. The first group of each,
// mostly the only one, stays in registers from one half to the other.
template <int kWidth, int kFold = 1, typename Values>
__device__ void store_and_norm(const RowsOut& x, bool changes, const Values& values,
                               const float* weight, float eps, const RowsOut& y, int64_t cols) {
    const int64_t row = blockIdx.x;
    const RowsIn stored{x.data, x.stride, x.bf16};
    const auto num_threads = static_cast<int>(blockDim.x) * kFold;
    const int64_t step = int64_t{num_threads} * kWidth;
    const auto begin_of = [](int fold) {
        return (int64_t{threadIdx.x} + fold * int64_t{blockDim.x}) * kWidth;
    };
    float first[kWidth] = {};
    float squares[kFold] = {};
#pragma unroll
    for (int f = 0; f < kFold; ++f) {
        for (int64_t col = begin_of(f); col < cols; col += step) {
            float v[kWidth];
            values(col, v);
            if (changes) {
                if (x.bf16) {
#pragma unroll
                    for (int i = 0; i < kWidth; ++i) v[i] = rounded_to_bf16(v[i]);
                }
                store_group(x, row, col, v);
            }
#pragma unroll
            for (int i = 0; i < kWidth; ++i) squares[f] = __fmaf_rn(v[i], v[i], squares[f]);
            if (kFold == 1 && col < step) {
#pragma unroll
                for (int i = 0; i < kWidth; ++i) first[i] = v[i];
            }
        }
    }

    // On its way while the sums are made.
    const RowsIn weights{reinterpret_cast<const std::byte*>(weight), 0, false};
    float w[kWidth];
    if (begin_of(0) < cols) load_group(weights, 0, begin_of(0), w);
    __shared__ float sums[32];
    const float factor =
        norm_factor(squares, cols, eps, static_cast<int>(threadIdx.x), num_threads, sums);

#pragma unroll
    for (int f = 0; f < kFold; ++f) {
        for (int64_t col = begin_of(f); col < cols; col += step) {
            float v[kWidth];
            if (f > 0 || col >= step) load_group(weights, 0, col, w);
            if (kFold > 1 || col >= step) load_group(stored, row, col, first);
#pragma unroll
            for (int i = 0; i < kWidth; ++i) v[i] = first[i] * factor * w[i];
            store_group(y, row, col, v);
        }
    }
}

}  // namespace aerie::kernels::cuda
