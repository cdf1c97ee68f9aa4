#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <deep_gemm/impls/sm90_fp8_gemm_1d2d.cuh>

#include "kernels/cuda/fp8_tile.h"

namespace aerie::kernels::cuda {

// One instance. Multicast, where there is any, is of the rows, to thread blocks side by side in N.
template <deep_gemm::GemmType kType, int kBlockM, int kBlockN, int kMulticast, int kNumGroups>
Fp8Tile fp8_tile(float step_us = 0.0f) {
    constexpr int kStages = fp8_num_stages(kBlockM, kBlockN);
    constexpr int kMathThreads = kBlockM <= 64 ? 128 : 256;
    static_assert(128 % kBlockN == 0, "one scale of the weights for a block");
    return {kBlockM,
            kBlockN,
            kStages,
            kMathThreads,
            kMulticast,
            kNumGroups,
            step_us,
            reinterpret_cast<const void*>(
                &deep_gemm::sm90_fp8_gemm_1d2d_impl<
                    cute::UMMA::Major::K, 0, 0, 0, kNumGroups, kBlockM, kBlockN, 128, 128, 128,
                    fp8_swizzle(kBlockN), kStages, 128, kMathThreads, kMulticast, (kMulticast > 1),
                    kFp8Processors, kType, cutlass::bfloat16_t, 128>)};
}

}  // namespace aerie::kernels::cuda
