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

// Sixteen e4m3 values.
AERIE_INLINE F16 load_f8(const uint8_t* x) {
    typedef uint8_t NativeB __attribute__((vector_size(kNative)));
    F16 r;
    AERIE_EACH {
        NativeB bytes;
        __builtin_memcpy(&bytes, x + p * kNative, sizeof bytes);
        const NativeU u = __builtin_convertvector(bytes, NativeU);
        const NativeU magnitude = u & 0x7fu;
        const NativeF normal = (NativeF)((magnitude << 20) + (120u << 23));
        // Subnormal: normal came out as 2^-7 + magnitude · 2^-10 where magnitude · 2^-9 is meant.
        const NativeF small = (normal - 0x1p-7f) * 2.0f;
        const NativeF value = magnitude < 8u ? small : normal;
        const NativeU bits = magnitude == 0x7fu ? NativeU{} + 0x7fc00000u : (NativeU)value;
        r.v[p] = (NativeF)(bits | ((u & 0x80u) << 24));
    }
    return r;
}

void dequant_panel_f32(const DequantPanel& d) {
    auto* out = static_cast<float*>(d.out);
    int64_t end = d.first_run;
    const float* scales = d.scales;
    for (int64_t k = 0; k < d.k; ++k) {
        if (k == end) {
            end += 128;
            scales += 16;
        }
        store(out + k * 16, load_f8(d.packed + k * 16) * load(scales));
    }
}

#if defined(__AVX512BF16__)
// Two rows of pairs' worth, 32 values: e4m3 has float16's fields with the exponent 8 lower, so it
// becomes that by moving bits, and the scales passed in are 256 times larger.
AERIE_INLINE void dequant_32(const uint8_t* x, __m512 low, __m512 high, uint16_t* out) {
    const __m512i v = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i*)x));
    const __m512i magnitude = _mm512_and_si512(_mm512_slli_epi16(v, 7), _mm512_set1_epi16(0x3f80));
    const __mmask32 nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x3f80));
    const __m512i half = _mm512_ternarylogic_epi32(
        _mm512_mask_mov_epi16(magnitude, nan, _mm512_set1_epi16(0x7e00)), _mm512_slli_epi16(v, 8),
        _mm512_set1_epi16(static_cast<int16_t>(0x8000)), 0xf8);  // a | (b & c)
    const __m512 first = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(half)), low);
    const __m512 second = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1)), high);
    _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(second, first));
}
#endif

void dequant_panel_bf16(const DequantPanel& d) {
    auto* out = static_cast<uint16_t*>(d.out);
    const float* scales = d.scales;
    int64_t end = d.first_run;
    for (int64_t k = 0; k < d.k; end += 128, scales += 16) {
        float doubled[32];  // each column's scale for both values of a pair
        for (int n = 0; n < 16; ++n) doubled[2 * n] = doubled[2 * n + 1] = scales[n];
        const int64_t stop = end < d.k ? end : d.k;
#if defined(__AVX512BF16__)
        const __m512 by = _mm512_set1_ps(256.0f);
        const __m512 low = _mm512_mul_ps(_mm512_loadu_ps(doubled), by);
        const __m512 high = _mm512_mul_ps(_mm512_loadu_ps(doubled + 16), by);
        for (; k < stop; k += 2) dequant_32(d.packed + k * 16, low, high, out + k * 16);
#else
        const F16 low = load(doubled), high = load(doubled + 16);
        for (; k < stop; k += 2) {
            store(out + k * 16, load_f8(d.packed + k * 16) * low);
            store(out + k * 16 + 16, load_f8(d.packed + k * 16 + 16) * high);
        }
#endif
    }
}

}  // namespace
}  // namespace aerie::kernels
