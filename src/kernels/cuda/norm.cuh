#pragma once

#include "kernels/cuda/row_io.cuh"

namespace aerie::kernels::cuda {

inline constexpr int kNormThreads = 1024;  // of a block, at most

// 1 / sqrt(mean + eps) of the squares that num_threads threads of the block, whole warps beside
// each other, have summed up, in an order that their number alone tells. sums: [32] of those
// threads. All threads of the block call it together.
__device__ inline float norm_factor(float squares, int64_t cols, float eps, int thread,
                                    int num_threads, float* sums) {
    for (int lane = 16; lane > 0; lane /= 2) squares += __shfl_xor_sync(~0u, squares, lane);
    if (thread % 32 == 0) sums[thread / 32] = squares;
    __syncthreads();
    float total = thread % 32 < num_threads / 32 ? sums[thread % 32] : 0.0f;
    for (int lane = 16; lane > 0; lane /= 2) total += __shfl_xor_sync(~0u, total, lane);
    return 1.0f / sqrtf(total / static_cast<float>(cols) + eps);
}

// One block a row of `cols`: x = what values(col, v) gives for each group of columns, rounded to
// x's type, then y = rms_norm(x). Without `changes` x is not written, and what it gives are x's
// values. The number of threads, row_grid(1, cols, kWidth, kNormThreads).threads, and with it the
// order of the sum of squares, depends on cols alone. The first group of each thread, mostly the
// only one, stays in registers from one half to the other.
template <int kWidth, typename Values>
__device__ void store_and_norm(const RowsOut& x, bool changes, const Values& values,
                               const float* weight, float eps, const RowsOut& y, int64_t cols) {
    const int64_t row = blockIdx.x;
    const RowsIn stored{x.data, x.stride, x.bf16};
    const int64_t step = int64_t{blockDim.x} * kWidth;
    float first[kWidth] = {};
    float squares = 0;
    for (int64_t col = int64_t{threadIdx.x} * kWidth; col < cols; col += step) {
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
        for (int i = 0; i < kWidth; ++i) squares = __fmaf_rn(v[i], v[i], squares);
        if (col < step) {
#pragma unroll
            for (int i = 0; i < kWidth; ++i) first[i] = v[i];
        }
    }

    // On its way while the sums are made.
    const RowsIn weights{reinterpret_cast<const std::byte*>(weight), 0, false};
    float w[kWidth];
    if (threadIdx.x * int64_t{kWidth} < cols) load_group(weights, 0, threadIdx.x * kWidth, w);
    __shared__ float sums[32];
    const float factor = norm_factor(squares, cols, eps, static_cast<int>(threadIdx.x),
                                     static_cast<int>(blockDim.x), sums);

    for (int64_t col = int64_t{threadIdx.x} * kWidth; col < cols; col += step) {
        float v[kWidth];
        if (col >= step) {
            load_group(weights, 0, col, w);
            load_group(stored, row, col, first);
        }
#pragma unroll
        for (int i = 0; i < kWidth; ++i) v[i] = first[i] * factor * w[i];
        store_group(y, row, col, v);
    }
}

}  // namespace aerie::kernels::cuda
