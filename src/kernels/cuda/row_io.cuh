// Rows of float32 or bfloat16 on the card, read and written in groups of 8 values (16 bytes of
// bfloat16) where cols and addresses allow it and one by one otherwise.
#pragma once

#include <cuda_bf16.h>

#include <concepts>

#include "base/check.h"
#include "tensor/cuda/check.h"
#include "tensor/stream.h"
#include "tensor/view.h"

namespace aerie::kernels::cuda {

// A View in a kernel's parameters.
template <typename Byte>
struct BasicRows {
    Byte* data = nullptr;
    int64_t stride = 0;  // bytes
    bool bf16 = false;
};
using RowsIn = BasicRows<const std::byte>;
using RowsOut = BasicRows<std::byte>;

inline void check_float(const char* what, ConstView x) {
    CHECK(x.dtype == DType::kF32 || x.dtype == DType::kBF16, "{} is {}, not float32 or bfloat16",
          what, name_of(x.dtype));
}
inline RowsIn rows_in(ConstView x) {
    return {x.data, x.row_stride * static_cast<int64_t>(size_of(x.dtype)), x.dtype == DType::kBF16};
}
inline RowsOut rows_out(View x) {
    return {x.data, x.row_stride * static_cast<int64_t>(size_of(x.dtype)), x.dtype == DType::kBF16};
}
inline cudaStream_t queue_of(const Stream& stream) {
    return static_cast<cudaStream_t>(stream.queue());
}

// Whether each of the views' rows can be cut into groups of 8 that lie at multiples of 16 bytes.
template <typename... Views>
bool in_groups(const Views&... views) {
    const auto aligned = [](ConstView x) {
        return x.cols % 8 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 &&
               x.row_stride * static_cast<int64_t>(size_of(x.dtype)) % 16 == 0;
    };
    return (aligned(views) && ...);
}

// Calls fn(std::integral_constant<int, width>) with the width of a group.
template <typename Fn>
void with_width(bool groups, Fn fn) {
    if (groups)
        fn(std::integral_constant<int, 8>{});
    else
        fn(std::integral_constant<int, 1>{});
}

// One block of threads for each row and each kMaxThreads groups of it.
struct RowGrid {
    dim3 blocks;
    int threads;
};
inline RowGrid row_grid(int64_t rows, int64_t cols, int width, int max_threads = 256) {
    const int64_t groups = (cols + width - 1) / width;
    const int threads =
        static_cast<int>(groups >= max_threads ? max_threads : (groups + 31) / 32 * 32);
    return {
        dim3(static_cast<unsigned>(rows), static_cast<unsigned>((groups + threads - 1) / threads)),
        threads};
}

__device__ inline float2 floats_of(uint32_t two) {
    return {__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u)};
}
__device__ inline uint32_t bf16_pair(float low, float high) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&two);
}
__device__ inline float rounded_to_bf16(float x) {
    return __bfloat162float(__float2bfloat16_rn(x));
}

template <int kWidth>
__device__ void load_group(const RowsIn& x, int64_t row, int64_t col, float (&v)[kWidth]) {
    static_assert(kWidth == 8 || kWidth == 1);
    const std::byte* at = x.data + row * x.stride + col * (x.bf16 ? 2 : 4);
    if constexpr (kWidth == 1) {
        v[0] = x.bf16 ? __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(at))
                      : *reinterpret_cast<const float*>(at);
    } else if (x.bf16) {
        const uint4 u = *reinterpret_cast<const uint4*>(at);
        const uint32_t words[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float2 two = floats_of(words[i]);
            v[2 * i] = two.x, v[2 * i + 1] = two.y;
        }
    } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float4 four = reinterpret_cast<const float4*>(at)[i];
            v[4 * i] = four.x, v[4 * i + 1] = four.y, v[4 * i + 2] = four.z, v[4 * i + 3] = four.w;
        }
    }
}

template <int kWidth>
__device__ void store_group(const RowsOut& y, int64_t row, int64_t col, const float (&v)[kWidth]) {
    std::byte* at = y.data + row * y.stride + col * (y.bf16 ? 2 : 4);
    if constexpr (kWidth == 1) {
        if (y.bf16)
            *reinterpret_cast<__nv_bfloat16*>(at) = __float2bfloat16_rn(v[0]);
        else
            *reinterpret_cast<float*>(at) = v[0];
    } else if (y.bf16) {
        *reinterpret_cast<uint4*>(at) = {bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]),
                                         bf16_pair(v[4], v[5]), bf16_pair(v[6], v[7])};
    } else {
        reinterpret_cast<float4*>(at)[0] = {v[0], v[1], v[2], v[3]};
        reinterpret_cast<float4*>(at)[1] = {v[4], v[5], v[6], v[7]};
    }
}

}  // namespace aerie::kernels::cuda
