// FP8 weights to the compute type, for sixteen lanes of any width. Included once by each
// instruction set's unit.
#pragma once

#include "kernels/cpu/ops.h"
#include "kernels/cpu/vec.h"

namespace aerie::kernels {
namespace {

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
