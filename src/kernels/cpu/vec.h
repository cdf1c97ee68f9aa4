// Sixteen fp32 lanes on whatever the including translation unit's flags give, so that each kernel
// is written once. Everything here has internal linkage: the same name means other code in each
// unit.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace aerie::kernels {
namespace {

#define AERIE_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
inline constexpr int kNative = 16;
#elif defined(__AVX2__)
inline constexpr int kNative = 8;
#else
inline constexpr int kNative = 4;
#endif
inline constexpr int kParts = 16 / kNative;

typedef float NativeF __attribute__((vector_size(kNative * 4)));
typedef int32_t NativeI __attribute__((vector_size(kNative * 4)));
typedef uint32_t NativeU __attribute__((vector_size(kNative * 4)));
typedef uint16_t NativeH __attribute__((vector_size(kNative * 2)));

struct F16 {
    NativeF v[kParts];
};

#define AERIE_EACH for (int p = 0; p < kParts; ++p)

AERIE_INLINE F16 set1(float x) {
    F16 r;
    AERIE_EACH r.v[p] = NativeF{} + x;
    return r;
}
AERIE_INLINE F16 zero() { return F16{}; }
AERIE_INLINE F16 load(const float* x) {
    F16 r;
    AERIE_EACH __builtin_memcpy(&r.v[p], x + p * kNative, sizeof(NativeF));
    return r;
}
AERIE_INLINE F16 load(const uint16_t* x) {
    F16 r;
    AERIE_EACH {
        NativeH h;
        __builtin_memcpy(&h, x + p * kNative, sizeof h);
        r.v[p] = (NativeF)(__builtin_convertvector(h, NativeU) << 16);
    }
    return r;
}
AERIE_INLINE void store(float* y, F16 x) {
    AERIE_EACH __builtin_memcpy(y + p * kNative, &x.v[p], sizeof(NativeF));
}
// Nearest even, as bf16_from_f32.
AERIE_INLINE void store(uint16_t* y, F16 x) {
    AERIE_EACH {
        const NativeU bits = (NativeU)x.v[p];
        const NativeU rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        const NativeU nan = (bits >> 16) | 0x40u;
        const NativeH h =
            __builtin_convertvector((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded, NativeH);
        __builtin_memcpy(y + p * kNative, &h, sizeof h);
    }
}
template <typename T>
AERIE_INLINE F16 load_some(const T* x, int64_t n) {  // n < 16; the rest is 0
    T lanes[16] = {};
    for (int64_t i = 0; i < n; ++i) lanes[i] = x[i];
    return load(lanes);
}
template <typename T>
AERIE_INLINE void store_some(T* y, F16 x, int64_t n) {
    T lanes[16];
    store(lanes, x);
    for (int64_t i = 0; i < n; ++i) y[i] = lanes[i];
}

AERIE_INLINE F16 operator+(F16 a, F16 b) {
    AERIE_EACH a.v[p] += b.v[p];
    return a;
}
AERIE_INLINE F16 operator-(F16 a, F16 b) {
    AERIE_EACH a.v[p] -= b.v[p];
    return a;
}
AERIE_INLINE F16 operator*(F16 a, F16 b) {
    AERIE_EACH a.v[p] *= b.v[p];
    return a;
}
AERIE_INLINE F16 operator/(F16 a, F16 b) {
    AERIE_EACH a.v[p] /= b.v[p];
    return a;
}
AERIE_INLINE F16 max(F16 a, F16 b) {
    AERIE_EACH a.v[p] = a.v[p] > b.v[p] ? a.v[p] : b.v[p];
    return a;
}
// a · b + c, fused where the instruction set can.
AERIE_INLINE F16 fma(F16 a, F16 b, F16 c) {
#if defined(__AVX512F__)
    c.v[0] = (NativeF)_mm512_fmadd_ps((__m512)a.v[0], (__m512)b.v[0], (__m512)c.v[0]);
#elif defined(__FMA__)
    AERIE_EACH c.v[p] = (NativeF)_mm256_fmadd_ps((__m256)a.v[p], (__m256)b.v[p], (__m256)c.v[p]);
#else
    AERIE_EACH c.v[p] += a.v[p] * b.v[p];
#endif
    return c;
}
// Lanes where index < limit keep x, the others get value.
AERIE_INLINE F16 where_below(F16 x, int32_t index, const int32_t* limits, float value) {
    AERIE_EACH {
        NativeI limit;
        __builtin_memcpy(&limit, limits + p * kNative, sizeof limit);
        x.v[p] = limit > index ? x.v[p] : NativeF{} + value;
    }
    return x;
}
AERIE_INLINE float reduce_add(F16 x) {
    float lanes[16];
    store(lanes, x);
    for (int step = 8; step > 0; step /= 2)
        for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
    return lanes[0];
}

// 2^f for f in [−0.5, 0.5]: the Taylor series, off by at most 1.2e-7.
AERIE_INLINE F16 exp2_fraction(F16 f) {
    F16 r = set1(1.54035304e-4f);
    r = fma(r, f, set1(1.33335581e-3f));
    r = fma(r, f, set1(9.61812911e-3f));
    r = fma(r, f, set1(5.55041087e-2f));
    r = fma(r, f, set1(2.40226507e-1f));
    r = fma(r, f, set1(6.93147181e-1f));
    r = fma(r, f, set1(1.0f));
    return r;
}

// 2^x, about 1 ulp; exactly 1 at 0, exactly 0 below −126 (and at −inf), NaN stays NaN. x <= 127.
AERIE_INLINE F16 exp2(F16 x) {
#if defined(__AVX512F__)
    const __m512 v = (__m512)x.v[0];
    const __m512 n = _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    F16 f;
    f.v[0] = (NativeF)_mm512_sub_ps(v, n);
    const __m512 r = (__m512)exp2_fraction(f).v[0];
    const __mmask16 normal = _mm512_cmp_ps_mask(v, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    F16 y;
    y.v[0] = (NativeF)_mm512_maskz_scalef_ps(normal, r, n);
    return y;
#else
    const F16 magic = set1(12582912.0f);  // 1.5 · 2^23: adding it rounds to an integer
    F16 n;
    F16 f;
    AERIE_EACH {
        const NativeF clamped = x.v[p] < -127.0f ? NativeF{} - 127.0f : x.v[p];
        n.v[p] = clamped + magic.v[p];
        f.v[p] = clamped - (n.v[p] - magic.v[p]);
    }
    F16 r = exp2_fraction(f);
    AERIE_EACH {
        const NativeF scaled = (NativeF)((NativeI)r.v[p] + ((NativeI)n.v[p] << 23));
        r.v[p] = x.v[p] < -126.0f ? NativeF{} : x.v[p] != x.v[p] ? x.v[p] : scaled;
    }
    return r;
#endif
}
AERIE_INLINE F16 exp(F16 x) {
    AERIE_EACH x.v[p] = x.v[p] > 88.0f ? NativeF{} + 88.0f : x.v[p];
    return exp2(x * set1(1.44269504f));
}

}  // namespace
}  // namespace aerie::kernels
