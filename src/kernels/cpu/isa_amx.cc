// AMX-BF16: the matrix loops in tiles of 16 × 16 results, 32 products deep. A result's products are
// added in the same order whatever the number of rows in its tile. What is not bfloat16 is
// AVX512's.
#include <immintrin.h>

#include "kernels/cpu/generic_mla.h"
#include "kernels/cpu/ops.h"

namespace aerie::kernels {
namespace {

inline constexpr int64_t kTileBytes = 1024;  // 16 pairs of k × 16 columns × 2

struct alignas(64) TileConfig {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};

    TileConfig() {
        for (int t = 0; t < 8; ++t) {
            row_bytes[t] = 64;
            rows[t] = 16;
        }
    }
    void load() const {
        // g++ 12 believes that only 8 bytes are read: without this the stores above may be dropped.
        __asm__ volatile("" ::"r"(this) : "memory");
        _tile_loadconfig(this);
    }
};

// The intrinsics that load tiles do not tell the compiler that they read memory: this keeps stores
// before and after them in place.
AERIE_INLINE void memory_fence() { __asm__ volatile("" ::: "memory"); }

// Scratch that an inner loop needs on its own thread. Plain memory that grows: no destructor to run
// while other threads' loops still do.
struct Memory {
    void* data = nullptr;
    int64_t size = 0;
    char* reserve(int64_t bytes) {
        if (size < bytes) {
            _mm_free(data);
            data = _mm_malloc(static_cast<size_t>(bytes), 64);
            size = bytes;
        }
        return static_cast<char*>(data);
    }
    ~Memory() { _mm_free(data); }
};

// Rows of x as tiles want them: whole, 32 values deep, evenly apart.
struct TileRows {
    const char* data;
    int64_t stride;  // bytes
};

TileRows tile_rows(const LinearBlock& b, int64_t row, int64_t rows, int64_t steps, Memory& memory) {
    const auto* x = static_cast<const char*>(b.x);
    if (b.x_rows == nullptr && b.k % 32 == 0) return {x + row * b.x_stride * 2, b.x_stride * 2};
    const int64_t stride = steps * 64;
    char* copy = memory.reserve(rows * stride);
    for (int64_t i = 0; i < rows; ++i) {
        const int64_t from = b.x_rows != nullptr ? b.x_rows[row + i] : row + i;
        __builtin_memcpy(copy + i * stride, x + from * b.x_stride * 2,
                         static_cast<size_t>(b.k * 2));
        __builtin_memset(copy + i * stride + b.k * 2, 0, static_cast<size_t>(stride - b.k * 2));
    }
    return {copy, stride};
}

// results [rows][cols] float32, 64 columns apart, to y.
void write_results(const LinearBlock& b, const float* results, int64_t row, int64_t rows,
                   int64_t col, int64_t cols) {
    if (b.y_bf16 && cols % 32 == 0) {
        auto* y = static_cast<uint16_t*>(b.y) + row * b.y_stride + col;
        for (int64_t i = 0; i < rows; ++i, y += b.y_stride)
            for (int64_t j = 0; j < cols; j += 32)
                _mm512_storeu_si512(
                    y + j, (__m512i)_mm512_cvtne2ps_pbh(_mm512_load_ps(results + i * 64 + j + 16),
                                                        _mm512_load_ps(results + i * 64 + j)));
        return;
    }
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; j += 16) {
            const __mmask16 mask =
                cols - j >= 16 ? 0xffff : static_cast<__mmask16>((1u << (cols - j)) - 1);
            const __m512 v = _mm512_load_ps(results + i * 64 + j);
            const int64_t at = (row + i) * b.y_stride + col + j;
            if (b.y_bf16)
                _mm256_mask_storeu_epi16(static_cast<uint16_t*>(b.y) + at, mask,
                                         (__m256i)_mm512_cvtneps_pbh(v));
            else
                _mm512_mask_storeu_ps(static_cast<float*>(b.y) + at, mask, v);
        }
}

// Up to 16 rows by four panels.
AERIE_INLINE void tiles_1x4(TileRows x, const char* w, int64_t panel_stride, int64_t steps,
                            float* results) {
    memory_fence();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t s = 0; s < steps; ++s) {
        const char* b = w + s * kTileBytes;
        _tile_loadd(4, x.data + s * 64, x.stride);
        _tile_loadd(5, b, 64);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(6, b + panel_stride, 64);
        _tile_dpbf16ps(1, 4, 6);
        _tile_loadd(7, b + 2 * panel_stride, 64);
        _tile_dpbf16ps(2, 4, 7);
        _tile_loadd(5, b + 3 * panel_stride, 64);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_stored(0, results, 256);
    _tile_stored(1, results + 16, 256);
    _tile_stored(2, results + 32, 256);
    _tile_stored(3, results + 48, 256);
}

AERIE_INLINE void tiles_1x1(TileRows x, const char* w, int64_t steps, float* results) {
    memory_fence();
    _tile_zero(0);
    for (int64_t s = 0; s < steps; ++s) {
        _tile_loadd(4, x.data + s * 64, x.stride);
        _tile_loadd(5, w + s * kTileBytes, 64);
        _tile_dpbf16ps(0, 4, 5);
    }
    _tile_stored(0, results, 256);
}

// 17 to 32 rows by two panels.
AERIE_INLINE void tiles_2x2(TileRows x, const char* w, int64_t panel_stride, int64_t steps,
                            float* results) {
    memory_fence();
    const char* below = x.data + 16 * x.stride;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t s = 0; s < steps; ++s) {
        const char* b = w + s * kTileBytes;
        _tile_loadd(4, x.data + s * 64, x.stride);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + panel_stride, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, below + s * 64, x.stride);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, results, 256);
    _tile_stored(1, results + 16, 256);
    _tile_stored(2, results + 16 * 64, 256);
    _tile_stored(3, results + 16 * 64 + 16, 256);
}

AERIE_INLINE void tiles_2x1(TileRows x, const char* w, int64_t steps, float* results) {
    memory_fence();
    const char* below = x.data + 16 * x.stride;
    _tile_zero(0);
    _tile_zero(2);
    for (int64_t s = 0; s < steps; ++s) {
        _tile_loadd(6, w + s * kTileBytes, 64);
        _tile_loadd(4, x.data + s * 64, x.stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, below + s * 64, x.stride);
        _tile_dpbf16ps(2, 5, 6);
    }
    _tile_stored(0, results, 256);
    _tile_stored(2, results + 16 * 64, 256);
}

// One group of up to 32 rows by all panels.
void linear_row_group(const LinearBlock& b, TileRows x, int64_t row, int64_t rows, int64_t steps) {
    alignas(64) float results[32 * 64];
    const auto* w = static_cast<const char*>(b.w);
    const bool tall = rows > 16;
    for (int64_t col = 0; col < b.n;) {
        const char* panels = w + col / 16 * b.panel_stride;
        const int64_t left = (b.n - col + 15) / 16;
        int64_t taken = 1;
        if (tall && left >= 2) {
            tiles_2x2(x, panels, b.panel_stride, steps, results);
            taken = 2;
        } else if (tall) {
            tiles_2x1(x, panels, steps, results);
        } else if (left >= 4) {
            tiles_1x4(x, panels, b.panel_stride, steps, results);
            taken = 4;
        } else {
            tiles_1x1(x, panels, steps, results);
        }
        const int64_t cols = b.n - col < taken * 16 ? b.n - col : taken * 16;
        write_results(b, results, row, rows, col, cols);
        col += cols;
    }
}

void linear_amx(const LinearBlock& b) {
    static thread_local Memory memory;
    const int64_t steps = (b.k + 31) / 32;
    int64_t configured = 0;
    for (int64_t row = 0; row < b.m; row += 32) {
        const int64_t rows = b.m - row < 32 ? b.m - row : 32;
        if (rows != configured) {
            TileConfig config;
            const int64_t above = rows < 16 ? rows : 16;
            config.rows[4] = static_cast<uint8_t>(above);
            for (int t : {0, 1, 2, 3}) config.rows[t] = static_cast<uint8_t>(above);
            if (rows > 16)
                for (int t : {2, 3, 5}) config.rows[t] = static_cast<uint8_t>(rows - 16);
            config.load();
            configured = rows;
        }
        linear_row_group(b, tile_rows(b, row, rows, steps, memory), row, rows, steps);
    }
    _tile_release();
}

// ---- attention
// -------------------------------------------------------------------------------------
//
// K is not repacked: scores are K · Qᵀ, with keys as the left operand. For the values, rows of
// two tokens are interleaved, within 128-bit lanes because that is cheapest; so of 32 values the
// first panel holds 0-3, 8-11, 16-19, 24-27 and the second the others, and so does acc until
// finish_row_amx.

// Interleaved values of some steps of 32 tokens: panels of [pairs of tokens][16][2], zero past
// num_tokens.
struct Values {
    char* data;
    int64_t panel_bytes;
};

// Packs the values [n, n + num_values) of the steps [begin, end).
AERIE_INLINE void pack_values_amx(const MlaTile& t, int n, int num_values, int begin, int end,
                                  Values out) {
    const int known = (t.num_tokens + kMlaRunTokens - 1) / kMlaRunTokens * kMlaRunTokens;
    for (int i = begin * 32; i < end * 32; i += 2) {
        char* to = out.data + (i / 2 - begin * 16) * 64;
        if (i >= known) {  // before that the run's own rows are zero past the end
            for (int j = 0; j < num_values; j += 16, to += out.panel_bytes)
                _mm512_store_si512(to, __m512i{});
            continue;
        }
        const uint16_t* first = value_of<uint16_t>(t, i) + n;
        const uint16_t* second = first + t.stride;
        for (int j = 0; j < num_values; j += 32, to += 2 * out.panel_bytes) {
            const __m512i a = _mm512_loadu_si512(first + j), b = _mm512_loadu_si512(second + j);
            _mm512_store_si512(to, _mm512_unpacklo_epi16(a, b));
            _mm512_store_si512(to + out.panel_bytes, _mm512_unpackhi_epi16(a, b));
        }
    }
}

// scores [tokens][16] = keys · packed Q, four runs of 16 tokens at a time.
AERIE_INLINE void score_tile_one(const MlaTile& t, const MlaGroup& g, float* scores) {
    memory_fence();
    const int64_t stride = t.stride * 2;
    const int steps = t.key_dim / 32;
    const int runs = (t.num_tokens + kMlaRunTokens - 1) / kMlaRunTokens;
    const auto* q = static_cast<const char*>(g.q);
    const auto k = [&](int run) AERIE_LAMBDA {
        return static_cast<const char*>(t.runs[run < runs ? run : runs - 1]);
    };
    for (int run = 0; run < runs; run += 4) {
        const char *k0 = k(run), *k1 = k(run + 1), *k2 = k(run + 2), *k3 = k(run + 3);
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int s = 0; s < steps; ++s) {
            _tile_loadd(6, q + s * kTileBytes, 64);
            _tile_loadd(4, k0 + s * 64, stride);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(5, k1 + s * 64, stride);
            _tile_dpbf16ps(1, 5, 6);
            _tile_loadd(7, k2 + s * 64, stride);
            _tile_dpbf16ps(2, 7, 6);
            _tile_loadd(4, k3 + s * 64, stride);
            _tile_dpbf16ps(3, 4, 6);
        }
        float* to = scores + run * 256;
        _tile_stored(0, to, 64);
        if (run + 1 < runs) _tile_stored(1, to + 256, 64);
        if (run + 2 < runs) _tile_stored(2, to + 512, 64);
        if (run + 3 < runs) _tile_stored(3, to + 768, 64);
    }
}

// The same for two groups, two runs at a time.
AERIE_INLINE void score_tile_pair(const MlaTile& t, const MlaGroup* g, float* const* scores) {
    memory_fence();
    const int64_t stride = t.stride * 2;
    const int steps = t.key_dim / 32;
    const int runs = (t.num_tokens + kMlaRunTokens - 1) / kMlaRunTokens;
    const auto* q0 = static_cast<const char*>(g[0].q);
    const auto* q1 = static_cast<const char*>(g[1].q);
    for (int run = 0; run < runs; run += 2) {
        const auto* k0 = static_cast<const char*>(t.runs[run]);
        const auto* k1 = static_cast<const char*>(t.runs[run + 1 < runs ? run + 1 : run]);
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int s = 0; s < steps; ++s) {
            _tile_loadd(6, q0 + s * kTileBytes, 64);
            _tile_loadd(4, k0 + s * 64, stride);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, q1 + s * kTileBytes, 64);
            _tile_dpbf16ps(1, 4, 7);
            _tile_loadd(5, k1 + s * 64, stride);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, scores[0] + run * 256, 64);
        _tile_stored(1, scores[1] + run * 256, 64);
        if (run + 1 < runs) {
            _tile_stored(2, scores[0] + run * 256 + 256, 64);
            _tile_stored(3, scores[1] + run * 256 + 256, 64);
        }
    }
}

// Transposes 16 × 16 double words.
AERIE_INLINE void transpose(__m512i (&r)[16]) {
    __m512i t[16];
    unroll<8>([&](auto i) AERIE_LAMBDA {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    });
    unroll<4>([&](auto i) AERIE_LAMBDA {
        r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    });
    // r[4i + j] holds, in its 128-bit lane l, column 4l + j of rows 4i … 4i + 3.
    unroll<4>([&](auto j) AERIE_LAMBDA {
        const __m512i a = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x44);
        const __m512i b = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xee);
        const __m512i c = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x44);
        const __m512i d = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xee);
        t[j] = _mm512_shuffle_i32x4(a, c, 0x88);
        t[4 + j] = _mm512_shuffle_i32x4(a, c, 0xdd);
        t[8 + j] = _mm512_shuffle_i32x4(b, d, 0x88);
        t[12 + j] = _mm512_shuffle_i32x4(b, d, 0xdd);
    });
    unroll<16>([&](auto i) AERIE_LAMBDA { r[i] = t[i]; });
}

// probabilities [tokens][16] float32 → bfloat16, transposed: a tile [16 columns][32 tokens] for
// each step. Tokens past num_tokens are zero.
void transpose_probabilities(int num_tokens, const float* from, uint16_t* to) {
    const __m512i interleave =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (int i = 0; i < num_tokens; i += 32) {
        __m512i r[16];
        unroll<16>([&](auto j) AERIE_LAMBDA {
            const int token = i + 2 * j;
            const __m512 a = token < num_tokens ? _mm512_load_ps(from + token * 16) : __m512{};
            const __m512 b =
                token + 1 < num_tokens ? _mm512_load_ps(from + token * 16 + 16) : __m512{};
            r[j] = _mm512_permutexvar_epi16(interleave, (__m512i)_mm512_cvtne2ps_pbh(b, a));
        });
        transpose(r);
        unroll<16>([&](auto c) AERIE_LAMBDA { _mm512_store_si512(to + i * 16 + c * 32, r[c]); });
    }
}

void rescale(const MlaTile& t, MlaGroup& g, F16 factor) {
    alignas(64) float factors[16];
    store(factors, factor);
    for (int c = 0; c < g.num_cols; ++c) {
        if (factors[c] == 1.0f) continue;  // as it mostly is, and multiplying by 1 changes no bit
        float* acc = g.acc + c * 16;
        for (int n = 0; n < t.value_dim * 16; n += 256)
            store(acc + n, load(acc + n) * set1(factors[c]));
    }
}

// acc += probabilities · V of two groups, 32 tokens a step.
AERIE_INLINE void value_tile_pair(const MlaTile& t, MlaGroup* g, const uint16_t* const* p,
                                  Values values) {
    memory_fence();
    const int steps = (t.num_tokens + 31) / 32;
    for (int n = 0; n < t.value_dim; n += 32) {
        const char* v = values.data + n / 16 * values.panel_bytes;
        if (t.first) {
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
        } else {
            _tile_loadd(0, g[0].acc + n * 16, 64);
            _tile_loadd(1, g[0].acc + n * 16 + 256, 64);
            _tile_loadd(2, g[1].acc + n * 16, 64);
            _tile_loadd(3, g[1].acc + n * 16 + 256, 64);
        }
        for (int s = 0; s < steps; ++s, v += kTileBytes) {
            _tile_loadd(4, p[0] + s * 512, 64);
            _tile_loadd(6, v, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, v + values.panel_bytes, 64);
            _tile_dpbf16ps(1, 4, 7);
            _tile_loadd(5, p[1] + s * 512, 64);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, g[0].acc + n * 16, 64);
        _tile_stored(1, g[0].acc + n * 16 + 256, 64);
        _tile_stored(2, g[1].acc + n * 16, 64);
        _tile_stored(3, g[1].acc + n * 16 + 256, 64);
    }
}

// The same for one group: kPanels panels of values, whose columns begin at n, and the steps [begin,
// end).
template <int kPanels>
AERIE_INLINE void value_steps(MlaGroup& g, const uint16_t* p, Values values, int n, int begin,
                              int end, bool fresh) {
    static_assert(kPanels == 2 || kPanels == 4);
    memory_fence();
    float* acc = g.acc + n * 16;
    const char* v = values.data;
    if (fresh) {
        _tile_zero(0);
        _tile_zero(1);
        if constexpr (kPanels == 4) {
            _tile_zero(2);
            _tile_zero(3);
        }
    } else {
        _tile_loadd(0, acc, 64);
        _tile_loadd(1, acc + 256, 64);
        if constexpr (kPanels == 4) {
            _tile_loadd(2, acc + 512, 64);
            _tile_loadd(3, acc + 768, 64);
        }
    }
    for (int s = begin; s < end; ++s, v += kTileBytes) {
        _tile_loadd(4, p + s * 512, 64);
        _tile_loadd(5, v, 64);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(6, v + values.panel_bytes, 64);
        _tile_dpbf16ps(1, 4, 6);
        if constexpr (kPanels == 4) {
            _tile_loadd(7, v + 2 * values.panel_bytes, 64);
            _tile_dpbf16ps(2, 4, 7);
            _tile_loadd(5, v + 3 * values.panel_bytes, 64);
            _tile_dpbf16ps(3, 4, 5);
        }
    }
    _tile_stored(0, acc, 64);
    _tile_stored(1, acc + 256, 64);
    if constexpr (kPanels == 4) {
        _tile_stored(2, acc + 512, 64);
        _tile_stored(3, acc + 768, 64);
    }
    memory_fence();
}

// A decode step has one group. Values are packed 64 columns by 128 tokens at a time and used while
// they are in the first cache: packing them all would take more than twice as long.
void value_tile_one(const MlaTile& t, MlaGroup& g, const uint16_t* p, char* memory) {
    constexpr int kSteps = 4;
    const int steps = (t.num_tokens + 31) / 32;
    const Values v{memory, kSteps * kTileBytes};
    for (int n = 0; n < t.value_dim; n += 64)
        for (int s = 0; s < steps; s += kSteps) {
            const int end = s + kSteps < steps ? s + kSteps : steps;
            const bool fresh = t.first && s == 0;
            if (n + 64 <= t.value_dim) {
                pack_values_amx(t, n, 64, s, end, v);
                value_steps<4>(g, p, v, n, s, end, fresh);
            } else {
                pack_values_amx(t, n, 32, s, end, v);
                value_steps<2>(g, p, v, n, s, end, fresh);
            }
        }
}

void mla_tile_amx(const MlaTile& t) {
    auto* memory = static_cast<float*>(t.scratch);
    float* scores[2] = {memory, memory + kMlaTile * 16};
    auto* probabilities = reinterpret_cast<uint16_t*>(memory + 2 * kMlaTile * 16);
    uint16_t* p[2] = {probabilities, probabilities + kMlaTile * 16};
    char* values = reinterpret_cast<char*>(probabilities + 2 * kMlaTile * 16);
    const int steps = (t.num_tokens + 31) / 32;
    const TileConfig whole;
    whole.load();
    MlaTile seen = t;  // by one or two groups
    const auto softmax = [&](MlaGroup& g, int i) AERIE_LAMBDA {
        const F16 factor = softmax_tile(seen, g, scores[i]);
        if (!t.first) rescale(t, g, factor);
        transpose_probabilities(seen.num_tokens, scores[i], p[i]);
    };
    if (t.num_groups == 1) {
        MlaGroup& g = t.groups[0];
        score_tile_one(t, g, scores[0]);
        softmax(g, 0);
        TileConfig fewer;  // rows take time
        for (int tile : {0, 1, 2, 3, 4}) fewer.rows[tile] = static_cast<uint8_t>(g.num_cols);
        fewer.load();
        value_tile_one(t, g, p[0], values);
        _tile_release();
        return;
    }
    // A line more than the pairs need, so that panels do not meet in one set of the cache.
    const Values v{values, steps * kTileBytes + 64};
    pack_values_amx(t, 0, t.value_dim, 0, steps, v);
    int i = 0;
    for (; i + 2 <= t.num_groups; i += 2) {
        const int first = t.groups[i].num_tokens, second = t.groups[i + 1].num_tokens;
        seen.num_tokens = first > second ? first : second;
        score_tile_pair(seen, t.groups + i, scores);
        softmax(t.groups[i], 0);
        softmax(t.groups[i + 1], 1);
        value_tile_pair(seen, t.groups + i, p, v);
    }
    if (i < t.num_groups) {
        seen.num_tokens = t.groups[i].num_tokens;
        score_tile_one(seen, t.groups[i], scores[0]);
        softmax(t.groups[i], 0);
        for (int n = 0; n < t.value_dim; n += 32)
            value_steps<2>(t.groups[i], p[0], {v.data + n / 16 * v.panel_bytes, v.panel_bytes}, n,
                           0, (seen.num_tokens + 31) / 32, t.first);
    }
    _tile_release();
}

void finish_row_amx(const float* acc, float factor, int64_t value_dim, RowOut out) {
    const __m512i low = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    const __m512i high = _mm512_add_epi64(low, _mm512_set1_epi64(4));
    for (int64_t n = 0; n < value_dim; n += 32) {
        const __m512d first = _mm512_load_pd(acc + n * 16),
                      second = _mm512_load_pd(acc + n * 16 + 256);
        F16 a, b;
        a.v[0] = (NativeF)_mm512_permutex2var_pd(first, low, second);
        b.v[0] = (NativeF)_mm512_permutex2var_pd(first, high, second);
        typed(out, [&](auto* y) AERIE_LAMBDA {
            store(y + n, a * set1(factor));
            store(y + n + 16, b * set1(factor));
        });
    }
}

}  // namespace

const CpuOps& amx_ops() {
    static const CpuOps table = [] {
        CpuOps ops = avx512_ops();
        ops.linear_bf16 = linear_amx;
        ops.mla_tile_bf16 = mla_tile_amx;
        ops.mla_finish_bf16 = finish_row_amx;
        return ops;
    }();
    return table;
}

}  // namespace aerie::kernels
