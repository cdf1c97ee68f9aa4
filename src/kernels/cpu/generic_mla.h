// One tile of attention for sixteen lanes of any width: a lane is a (row, head) column.
// Included once by each instruction set's unit. Scores are computed transposed, [token][column], so
// that the KV rows are read as they lie and the softmax of a column stays in its lane.
#pragma once

#include "kernels/cpu/generic_linear.h"
#include "kernels/cpu/generic_rows.h"

namespace aerie::kernels {
namespace {

inline constexpr float kNegativeInfinity = -__builtin_inff();

// scores [num_tokens][16] → probabilities relative to the new maximum, in place. Returns the factor
// that what was accumulated before must be multiplied by.
AERIE_INLINE F16 softmax_tile(const MlaTile& t, MlaGroup& g, float* scores) {
    bool masked = false;  // columns that are not in use have the score 0, which harms nobody
    for (int c = 0; c < g.num_cols; ++c) masked = masked || g.limit[c] < t.num_tokens;
    F16 highest = set1(kNegativeInfinity);
    for (int i = 0; i < t.num_tokens; ++i) {
        F16 s = load(scores + i * 16);
        if (masked) {
            s = where_below(s, i, g.limit, kNegativeInfinity);
            store(scores + i * 16, s);
        }
        highest = max(highest, s);
    }
    const F16 scale = set1(t.scale);  // positive: the largest score stays the largest
    const F16 before = t.first ? set1(kNegativeInfinity) : load(g.max);
    highest = max(before, highest * scale);
    F16 origin = highest;  // finite, so that no difference is −inf − (−inf)
    AERIE_EACH origin.v[p] = origin.v[p] == kNegativeInfinity ? NativeF{} : origin.v[p];
    const F16 factor = exp2(before - origin);
    const F16 minus = zero() - origin;
    F16 sums[4] = {zero(), zero(), zero(), zero()};
    for (int i = 0; i < t.num_tokens; i += 4)
        for (int j = 0; j < 4 && i + j < t.num_tokens; ++j) {
            const F16 probability = exp2(fma(load(scores + (i + j) * 16), scale, minus));
            store(scores + (i + j) * 16, probability);
            sums[j] = sums[j] + probability;
        }
    const F16 sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    store(g.max, highest);
    store(g.sum, t.first ? sum : load(g.sum) * factor + sum);
    return factor;
}

// scores [tokens][16] = keys · packed Q.
template <typename T>
AERIE_INLINE void score_tile(const MlaTile& t, const MlaGroup& g, float* scores) {
    const PanelMatrix<T> q{static_cast<const char*>(g.q), 0, 64};
    constexpr int kRows = kRowBlock;
    for (int i = 0; i < t.num_tokens; i += kRows) {
        const T* x[kRows];
        for (int m = 0; m < kRows; ++m)
            x[m] = static_cast<const T*>(t.runs[(i + m) / kMlaRunTokens]) +
                   (i + m) % kMlaRunTokens * t.stride;
        F16 acc[kRows][1] = {};
        multiply<kRows, 1>(x, q, t.key_dim, acc);
        unroll<kRows>([&](auto m) AERIE_LAMBDA { store(scores + (i + m) * 16, acc[m][0]); });
    }
}

// acc[c] = acc[c] · factor[c] + probabilities[c] · V, for the columns in use.
template <typename T, int MR, int NP>
AERIE_INLINE void value_rows(const MlaTile& t, MlaGroup& g, const T* probabilities,
                             const float* factors, PanelMatrix<T> v, int tokens, int col, int n) {
    const T* x[MR];
    for (int m = 0; m < MR; ++m) x[m] = probabilities + (col + m) * kMlaTile;
    F16 acc[MR][NP];
    unroll<MR>([&](auto m) AERIE_LAMBDA {
        unroll<NP>([&](auto p) AERIE_LAMBDA {
            const float* from = g.acc + (n + p * 16 + col + m) * 16;
            acc[m][p] = t.first ? zero() : load(from) * set1(factors[col + m]);
        });
    });
    multiply<MR, NP>(x, v, tokens, acc);
    unroll<MR>([&](auto m) AERIE_LAMBDA {
        unroll<NP>([&](auto p)
                       AERIE_LAMBDA { store(g.acc + (n + p * 16 + col + m) * 16, acc[m][p]); });
    });
}

template <typename T>
AERIE_INLINE void value_tile(const MlaTile& t, MlaGroup& g, const T* probabilities,
                             const float* factors, PanelMatrix<T> v, int tokens) {
    constexpr int kRows = 4;
    for (int n = 0; n < t.value_dim; n += 16 * kPanelBlock) {
        const PanelMatrix<T> part{v.data + n / 16 * v.panel_stride, v.panel_stride, v.k_stride};
        int col = 0;
        for (; col + kRows <= g.num_cols; col += kRows)
            value_rows<T, kRows, kPanelBlock>(t, g, probabilities, factors, part, tokens, col, n);
        for (; col < g.num_cols; ++col)
            value_rows<T, 1, kPanelBlock>(t, g, probabilities, factors, part, tokens, col, n);
    }
}

// The value of the tile's token i.
template <typename T>
AERIE_INLINE const T* value_of(const MlaTile& t, int i) {
    return static_cast<const T*>(t.runs[i / kMlaRunTokens]) + i % kMlaRunTokens * t.stride +
           t.value_begin;
}

// Values of the tile as a [tokens][value_dim] matrix.
void copy_values(const MlaTile& t, float* out) {
    for (int i = 0; i < t.num_tokens; ++i)
        __builtin_memcpy(out + i * t.value_dim, value_of<float>(t, i), t.value_dim * sizeof(float));
}

// [value_dim / 16] panels of [pairs of tokens][16][2]; pairs beyond the tokens are zero up to a
// multiple of 16 pairs.
void pack_values(const MlaTile& t, uint16_t* out) {
    for (int i = 0; i < (t.num_tokens + 31) / 32 * 32; i += 2) {
        const uint16_t* rows[2] = {nullptr, nullptr};
        for (int j = 0; j < 2; ++j)
            if (i + j < t.num_tokens) rows[j] = value_of<uint16_t>(t, i + j);
        for (int n = 0; n < t.value_dim; ++n) {
            uint16_t* to = out + (n / 16 * (kMlaTile / 2) + i / 2) * 32 + n % 16 * 2;
            to[0] = rows[0] != nullptr ? rows[0][n] : 0;
            to[1] = rows[1] != nullptr ? rows[1][n] : 0;
        }
    }
}

void mla_tile_f32_lanes(const MlaTile& t) {
    auto* scores = static_cast<float*>(t.scratch);
    float* transposed = scores + kMlaScoreBytes / 4;  // [16][kMlaTile]
    float* values = transposed + kMlaScoreBytes / 4;
    copy_values(t, values);
    MlaTile seen = t;  // by one group
    for (int i = 0; i < t.num_groups; ++i) {
        MlaGroup& g = t.groups[i];
        seen.num_tokens = g.num_tokens;
        float factors[16];
        score_tile<float>(seen, g, scores);
        store(factors, softmax_tile(seen, g, scores));
        for (int c = 0; c < g.num_cols; ++c)
            for (int j = 0; j < g.num_tokens; ++j)
                transposed[c * kMlaTile + j] = scores[j * 16 + c];
        value_tile<float>(seen, g, transposed, factors,
                          {reinterpret_cast<const char*>(values), 64, t.value_dim * 4},
                          g.num_tokens);
    }
}

void mla_tile_bf16_lanes(const MlaTile& t) {
    auto* scores = static_cast<float*>(t.scratch);
    auto* transposed = reinterpret_cast<uint16_t*>(scores + kMlaScoreBytes / 4);  // [16][kMlaTile]
    auto* values = reinterpret_cast<uint16_t*>(scores + 2 * kMlaScoreBytes / 4);
    pack_values(t, values);
    MlaTile seen = t;  // by one group
    for (int i = 0; i < t.num_groups; ++i) {
        MlaGroup& g = t.groups[i];
        seen.num_tokens = g.num_tokens;
        const int even = (g.num_tokens + 1) / 2 * 2;
        float factors[16];
        score_tile<uint16_t>(seen, g, scores);
        store(factors, softmax_tile(seen, g, scores));
        if (even != g.num_tokens) store(scores + g.num_tokens * 16, zero());
        for (int j = 0; j < even; ++j) {
            uint16_t rounded[16];
            store(rounded, load(scores + j * 16));
            for (int c = 0; c < g.num_cols; ++c) transposed[c * kMlaTile + j] = rounded[c];
        }
        value_tile<uint16_t>(seen, g, transposed, factors,
                             {reinterpret_cast<const char*>(values), kMlaTile / 2 * 64, 64}, even);
    }
}

void mla_merge_lanes(MlaGroup& into, const MlaGroup& from, int value_dim) {
    const F16 highest = max(load(into.max), load(from.max));
    F16 origin = highest;
    AERIE_EACH origin.v[p] = origin.v[p] == kNegativeInfinity ? NativeF{} : origin.v[p];
    const F16 a = exp2(load(into.max) - origin), b = exp2(load(from.max) - origin);
    store(into.max, highest);
    store(into.sum, load(into.sum) * a + load(from.sum) * b);
    float a_lanes[16], b_lanes[16];
    store(a_lanes, a);
    store(b_lanes, b);
    for (int n = 0; n < value_dim * 16; n += 256)
        for (int c = 0; c < into.num_cols; ++c) {
            float* to = into.acc + n + c * 16;
            store(to, load(to) * set1(a_lanes[c]) + load(from.acc + n + c * 16) * set1(b_lanes[c]));
        }
}

// One column's values, in order.
void mla_finish_lanes(const float* acc, float factor, int64_t value_dim, RowOut out) {
    typed(out, [&](auto* y) {
        for (int64_t n = 0; n < value_dim; n += 16) store(y + n, load(acc + n * 16) * set1(factor));
    });
}

}  // namespace
}  // namespace aerie::kernels
