// Quantising on the card: 8 threads take a group of 128 columns, 16 to each.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "kernels/cuda/fp8_gemm.h"

namespace aerie::kernels::cuda {

inline constexpr int kColumns = 16;  // of a thread

__device__ inline void unpack(uint4 bits, float* v) {
    const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(&bits);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 pair = __bfloat1622float2(pairs[i]);
        v[2 * i] = pair.x;
        v[2 * i + 1] = pair.y;
    }
}

struct Columns {
    float v[kColumns];

    static __device__ Columns load(const __nv_bfloat16* from) {
        const uint4 low = reinterpret_cast<const uint4*>(from)[0];
        const uint4 high = reinterpret_cast<const uint4*>(from)[1];
        Columns r;
        unpack(low, r.v);
        unpack(high, r.v + 8);
        return r;
    }
};

// The thread's values in e4m3, and its group's scale.
struct Quantised {
    uint4 values;
    float scale;

    __device__ void store(const Fp8Rows& out, int64_t row, int column) const {
        *reinterpret_cast<uint4*>(out.values + row * out.cols + column) = values;
        if (column % 128 == 0) out.scales[column / 128 * out.scale_stride + row] = scale;
    }
};

// All lanes of the warp take part.
__device__ inline Quantised quantise(const Columns& x) {
    float largest = 0.0f;
#pragma unroll
    for (float v : x.v) largest = fmaxf(largest, fabsf(v));
#pragma unroll
    for (int distance = 4; distance > 0; distance /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, distance));
    // A group of zeros gets a scale of 1; a tiny one no infinite inverse.
    largest = largest == 0.0f ? 448.0f : fmaxf(largest, 1e-30f);
    const float inverse = __fdiv_rn(448.0f, largest);
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float* v = x.v + 4 * i;
        const uint32_t low =
            __nv_cvt_float2_to_fp8x2({v[0] * inverse, v[1] * inverse}, __NV_SATFINITE, __NV_E4M3);
        const uint32_t high =
            __nv_cvt_float2_to_fp8x2({v[2] * inverse, v[3] * inverse}, __NV_SATFINITE, __NV_E4M3);
        words[i] = low | high << 16;
    }
    return {{words[0], words[1], words[2], words[3]}, largest * (1.0f / 448.0f)};
}

// silu(gate) · up, rounded as activation.h's result is.
__device__ inline Columns silu_mul(const Columns& gate, const Columns& up) {
    Columns r;
#pragma unroll
    for (int i = 0; i < kColumns; ++i)
        r.v[i] = __bfloat162float(
            __float2bfloat16_rn(__fdividef(gate.v[i], 1.0f + __expf(-gate.v[i])) * up.v[i]));
    return r;
}

}  // namespace aerie::kernels::cuda
