// Quantising on the card: half a warp takes a group of 128 columns, 8 to a thread.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace aerie::kernels::cuda {

// 8 neighbouring columns; 16 bytes of bfloat16.
struct Eight {
    float v[8];

    static __device__ Eight load(const __nv_bfloat16* from) {
        const uint4 bits = *reinterpret_cast<const uint4*>(from);
        const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(&bits);
        Eight r;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float2 pair = __bfloat1622float2(pairs[i]);
            r.v[2 * i] = pair.x;
            r.v[2 * i + 1] = pair.y;
        }
        return r;
    }
};

// The group that the half warp holds: the thread's 8 values, in e4m3, and the scale.
struct Quantised {
    uint2 values;
    float scale;
};
__device__ inline Quantised quantise(const Eight& x) {
    float largest = 0.0f;
#pragma unroll
    for (float v : x.v) largest = fmaxf(largest, fabsf(v));
#pragma unroll
    for (int distance = 8; distance > 0; distance /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, distance));
    // A group of zeros gets a scale of 1; a tiny one no infinite inverse.
    largest = largest == 0.0f ? 448.0f : fmaxf(largest, 1e-30f);
    const float inverse = __fdiv_rn(448.0f, largest);
    Quantised r{{0, 0}, __fdiv_rn(largest, 448.0f)};
    uint32_t quarters[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        quarters[i] = __nv_cvt_float2_to_fp8x2({x.v[2 * i] * inverse, x.v[2 * i + 1] * inverse},
                                               __NV_SATFINITE, __NV_E4M3);
    r.values = {quarters[0] | quarters[1] << 16, quarters[2] | quarters[3] << 16};
    return r;
}

// silu(gate) · up, rounded as activation.h's result is.
__device__ inline Eight silu_mul(const Eight& gate, const Eight& up) {
    Eight r;
#pragma unroll
    for (int i = 0; i < 8; ++i)
        r.v[i] = __bfloat162float(
            __float2bfloat16_rn(gate.v[i] / (1.0f + __expf(-gate.v[i])) * up.v[i]));
    return r;
}

}  // namespace aerie::kernels::cuda
