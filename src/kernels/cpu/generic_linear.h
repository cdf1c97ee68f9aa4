// Matrix loops for sixteen lanes of any width. Included once by each instruction set's unit.
//
// Every output element has one accumulator that takes its products in ascending k, whatever the
// number of rows or panels computed beside it.
#pragma once

#include <utility>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/vec.h"

namespace aerie::kernels {
namespace {

template <int... I, typename Fn>
AERIE_INLINE void unroll_over(std::integer_sequence<int, I...>, Fn& fn) {
    (fn(std::integral_constant<int, I>{}), ...);
}
template <int N, typename Fn>
AERIE_INLINE void unroll(Fn fn) {
    unroll_over(std::make_integer_sequence<int, N>{}, fn);
}
#define AERIE_LAMBDA __attribute__((always_inline))

// Sixteen pairs of bfloat16.
struct Pairs {
#if defined(__AVX512BF16__)
    __m512i v;
#else
    F16 first;
    F16 second;
#endif
};

AERIE_INLINE Pairs load_pairs(const uint16_t* w) {
    Pairs r;
#if defined(__AVX512BF16__)
    r.v = _mm512_loadu_si512(w);
#else
    AERIE_EACH {
        NativeU both;
        __builtin_memcpy(&both, w + 2 * p * kNative, sizeof both);
        r.first.v[p] = (NativeF)(both << 16);
        r.second.v[p] = (NativeF)(both & 0xffff0000u);
    }
#endif
    return r;
}

// acc + w · (x[0], x[1]) in each lane.
AERIE_INLINE F16 dot_pair(F16 acc, const Pairs& w, uint32_t x) {
#if defined(__AVX512BF16__)
    acc.v[0] = (NativeF)_mm512_dpbf16_ps((__m512)acc.v[0], (__m512bh)w.v,
                                         (__m512bh)_mm512_set1_epi32(static_cast<int>(x)));
    return acc;
#else
    const uint32_t low = x << 16, high = x & 0xffff0000u;
    float first, second;
    __builtin_memcpy(&first, &low, 4);
    __builtin_memcpy(&second, &high, 4);
    return fma(w.second, set1(second), fma(w.first, set1(first), acc));
#endif
}

// A matrix [K][16] for each panel.
template <typename T>
struct PanelMatrix {
    const char* data;
    int64_t panel_stride;  // bytes
    int64_t k_stride;      // float32: bytes from one k to the next; bfloat16 is always packed pairs
};

template <int MR, int NP>
AERIE_INLINE void multiply(const float* const* x, PanelMatrix<float> w, int64_t k,
                           F16 (&acc)[MR][NP]) {
    for (int64_t i = 0; i < k; ++i) {
        F16 b[NP];
        unroll<NP>([&](auto p) AERIE_LAMBDA {
            b[p] =
                load(reinterpret_cast<const float*>(w.data + p * w.panel_stride + i * w.k_stride));
        });
        unroll<MR>([&](auto m) AERIE_LAMBDA {
            const F16 a = set1(x[m][i]);
            unroll<NP>([&](auto p) AERIE_LAMBDA { acc[m][p] = fma(a, b[p], acc[m][p]); });
        });
    }
}

template <int MR, int NP>
AERIE_INLINE void multiply(const uint16_t* const* x, PanelMatrix<uint16_t> w, int64_t k,
                           F16 (&acc)[MR][NP]) {
    auto step = [&](int64_t r, bool whole) AERIE_LAMBDA {
        Pairs b[NP];
        unroll<NP>([&](auto p) AERIE_LAMBDA {
            b[p] =
                load_pairs(reinterpret_cast<const uint16_t*>(w.data + p * w.panel_stride) + r * 32);
        });
        unroll<MR>([&](auto m) AERIE_LAMBDA {
            uint32_t pair = 0;
            if (whole)
                __builtin_memcpy(&pair, x[m] + 2 * r, 4);
            else
                pair = x[m][2 * r];
            unroll<NP>([&](auto p) AERIE_LAMBDA { acc[m][p] = dot_pair(acc[m][p], b[p], pair); });
        });
    };
    for (int64_t r = 0; r < k / 2; ++r) step(r, true);
    if (k % 2 != 0) step(k / 2, false);
}

#if defined(__AVX512F__)
inline constexpr int kRowBlock = 8;  // of 32 registers: 8 · 2 accumulators, 2 weights, 1 broadcast
inline constexpr int kPanelBlock = 2;
#else
inline constexpr int kRowBlock = 4;
inline constexpr int kPanelBlock = 1;
#endif

template <typename T, int MR, int NP>
AERIE_INLINE void linear_tile(const LinearBlock& b, int64_t row, int64_t col) {
    const T* x[MR];
    for (int m = 0; m < MR; ++m) {
        const int64_t i = b.x_rows != nullptr ? b.x_rows[row + m] : row + m;
        x[m] = static_cast<const T*>(b.x) + i * b.x_stride;
    }
    F16 acc[MR][NP] = {};
    multiply<MR, NP>(x,
                     PanelMatrix<T>{static_cast<const char*>(b.w) + col / 16 * b.panel_stride,
                                    b.panel_stride, 64},
                     b.k, acc);
    unroll<MR>([&](auto m) AERIE_LAMBDA {
        unroll<NP>([&](auto p) AERIE_LAMBDA {
            const int64_t begin = col + p * 16;
            const int64_t offset = (row + m) * b.y_stride + begin;
            auto put = [&](auto* y) AERIE_LAMBDA {
                if (begin + 16 <= b.n)
                    store(y, acc[m][p]);
                else
                    store_some(y, acc[m][p], b.n - begin);
            };
            if (b.y_bf16)
                put(static_cast<uint16_t*>(b.y) + offset);
            else
                put(static_cast<float*>(b.y) + offset);
        });
    });
}

template <typename T, int MR, int NP>
void linear_rows(const LinearBlock& b, int64_t row, int64_t col) {
    if constexpr (MR > 1) {
        for (; row + MR <= b.m; row += MR) linear_tile<T, MR, NP>(b, row, col);
        linear_rows<T, MR / 2, NP>(b, row, col);
    } else {
        for (; row < b.m; ++row) linear_tile<T, 1, NP>(b, row, col);
    }
}

template <typename T>
void linear_block(const LinearBlock& b) {
    int64_t col = 0;
    for (; col + 16 * (kPanelBlock - 1) < b.n; col += 16 * kPanelBlock)
        linear_rows<T, kRowBlock, kPanelBlock>(b, 0, col);
    for (; col < b.n; col += 16) linear_rows<T, kRowBlock, 1>(b, 0, col);
}

}  // namespace
}  // namespace aerie::kernels
