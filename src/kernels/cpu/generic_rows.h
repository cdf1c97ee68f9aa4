// Row operations, for sixteen lanes of any width. Included once by each instruction set's unit.
#pragma once

#include "kernels/cpu/ops.h"
#include "kernels/cpu/vec.h"

namespace aerie::kernels {
namespace {

// Calls fn with the pointer's element type: float or uint16_t (bfloat16).
template <typename Fn>
AERIE_INLINE void typed(RowIn x, Fn fn) {
    if (x.bf16)
        fn(static_cast<const uint16_t*>(x.data));
    else
        fn(static_cast<const float*>(x.data));
}
template <typename Fn>
AERIE_INLINE void typed(RowOut y, Fn fn) {
    if (y.bf16)
        fn(static_cast<uint16_t*>(y.data));
    else
        fn(static_cast<float*>(y.data));
}

template <typename T>
AERIE_INLINE F16 load_at(const T* x, int64_t i, int64_t cols) {
    return i + 16 <= cols ? load(x + i) : load_some(x + i, cols - i);
}
template <typename T>
AERIE_INLINE void store_at(T* y, int64_t i, int64_t cols, F16 value) {
    if (i + 16 <= cols)
        store(y + i, value);
    else
        store_some(y + i, value, cols - i);
}

template <typename X>
AERIE_INLINE float mean_square(const X* x, int64_t cols) {
    F16 sums[4] = {zero(), zero(), zero(), zero()};
    for (int64_t i = 0; i < cols; i += 64)
        for (int j = 0; j < 4; ++j)
            if (i + j * 16 < cols) {
                const F16 v = load_at(x, i + j * 16, cols);
                sums[j] = sums[j] + v * v;
            }
    return reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3])) / static_cast<float>(cols);
}

void rms_norm_row(RowIn in, const float* weight, float eps, int64_t cols, RowOut out) {
    typed(in, [&](auto* x) {
        const float factor = 1.0f / __builtin_sqrtf(mean_square(x, cols) + eps);
        typed(out, [&](auto* y) {
            for (int64_t i = 0; i < cols; i += 16)
                store_at(y, i, cols, load_at(x, i, cols) * set1(factor) * load_at(weight, i, cols));
        });
    });
}

void sum_row(const RowIn* parts, int num_parts, int64_t cols, RowOut out) {
    for (int64_t i = 0; i < cols; i += 16) {
        F16 total = zero();
        for (int p = 0; p < num_parts; ++p)
            typed(parts[p], [&](auto* x) {
                const F16 v = load_at(x, i, cols);
                total = p == 0 ? v : total + v;
            });
        typed(out, [&](auto* y) { store_at(y, i, cols, total); });
    }
}

AERIE_INLINE F16 sigmoid(F16 x) { return set1(1.0f) / (set1(1.0f) + exp(zero() - x)); }

void silu_mul_row(RowIn gate, RowIn up, int64_t cols, RowOut out) {
    typed(gate, [&](auto* g) {
        auto* u = static_cast<decltype(g)>(up.data);
        typed(out, [&](auto* y) {
            for (int64_t i = 0; i < cols; i += 16) {
                const F16 a = load_at(g, i, cols);
                store_at(y, i, cols, a / (set1(1.0f) + exp(zero() - a)) * load_at(u, i, cols));
            }
        });
    });
}

void accumulate_row(RowIn in, int64_t x_stride, const PairOfRow* pairs, int num_pairs,
                    bool overwrite, int64_t cols, RowOut out) {
    typed(in, [&](auto* x) {
        typed(out, [&](auto* y) {
            for (int64_t i = 0; i < cols; i += 16) {
                F16 total = overwrite ? zero() : load_at(y, i, cols);
                for (int p = 0; p < num_pairs; ++p) {
                    auto* row = reinterpret_cast<decltype(x)>(reinterpret_cast<const char*>(x) +
                                                              pairs[p].row * x_stride);
                    total = total + set1(pairs[p].weight) * load_at(row, i, cols);
                }
                store_at(y, i, cols, total);
            }
        });
    });
}

// cos_sin: cos and sin of each pair; (a, b) → (a·cos − b·sin, a·sin + b·cos).
AERIE_INLINE F16 rotate(F16 x, F16 cos_sin) {
    F16 r;
    AERIE_EACH {
#if defined(__AVX512F__)
        const NativeF cosine = (NativeF)_mm512_moveldup_ps((__m512)cos_sin.v[p]);
        const NativeF sine = (NativeF)_mm512_movehdup_ps((__m512)cos_sin.v[p]);
        const NativeF swapped = (NativeF)_mm512_permute_ps((__m512)x.v[p], 0xb1);
        const NativeI flip = (NativeI)_mm512_set1_epi64(0x80000000);
#elif defined(__AVX2__)
        const NativeF cosine = (NativeF)_mm256_moveldup_ps((__m256)cos_sin.v[p]);
        const NativeF sine = (NativeF)_mm256_movehdup_ps((__m256)cos_sin.v[p]);
        const NativeF swapped = (NativeF)_mm256_permute_ps((__m256)x.v[p], 0xb1);
        const NativeI flip = (NativeI)_mm256_set1_epi64x(0x80000000);
#else
        const NativeF c = cos_sin.v[p];
        const NativeF cosine = NativeF{c[0], c[0], c[2], c[2]};
        const NativeF sine = NativeF{c[1], c[1], c[3], c[3]};
        const NativeF swapped = NativeF{x.v[p][1], x.v[p][0], x.v[p][3], x.v[p][2]};
        const NativeI flip = (NativeI)_mm_set1_epi64x(0x80000000);
#endif
        r.v[p] = x.v[p] * cosine + swapped * (NativeF)((NativeI)sine ^ flip);
    }
    return r;
}

void rope_row(RowIn in, const float* cos_sin, int dim, RowOut out) {
    typed(in, [&](auto* x) {
        typed(out, [&](auto* y) {
            for (int i = 0; i < dim; i += 16)
                store_at(y, i, dim, rotate(load_at(x, i, dim), load_at(cos_sin, i, dim)));
        });
    });
}

void sigmoid_row(const float* x, int64_t n, float* y) {
    for (int64_t i = 0; i < n; i += 16) store_at(y, i, n, sigmoid(load_at(x, i, n)));
}

void exp_row(const float* x, float minus, int64_t n, float* y) {
    for (int64_t i = 0; i < n; i += 16) store_at(y, i, n, exp(load_at(x, i, n) - set1(minus)));
}

}  // namespace
}  // namespace aerie::kernels
