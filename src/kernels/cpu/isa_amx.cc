// AMX-BF16: the matrix loops in tiles of 16 × 16 results, 32 products deep. A result's products are added
// in the same order whatever the number of rows in its tile. What is not bfloat16 is AVX512's.
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

// The intrinsics that load tiles do not tell the compiler that they read memory: this keeps stores before
// and after them in place.
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
    if (b.x_rows == nullptr && b.k % 32 == 0)
        return {x + row * b.x_stride * 2, b.x_stride * 2};
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
void write_results(const LinearBlock& b, const float* results, int64_t row, int64_t rows, int64_t col,
                   int64_t cols) {
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

// ---- attention -------------------------------------------------------------------------------------

// A panel of packed latents: 64 pairs of tokens, and one line more so that panels do not meet in one set
// of the cache.
inline constexpr int64_t kValuePanelBytes = 64 * 64 + 64;

// As pack_values, a row pair at a time: this is where KV comes from memory, and it comes in order.
void pack_values_fast(const MlaTile& t, char* out) {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8,
                                         39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    const int padded = (t.num_tokens + 31) / 32 * 32;
    for (int i = 0; i < padded; i += 2) {
        char* to = out + i / 2 * 64;
        const auto row = [&](int token) {
            return static_cast<const uint16_t*>(t.runs[token / kMlaRunTokens]) +
                   token % kMlaRunTokens * t.width;
        };
        const uint16_t* first = i < t.num_tokens ? row(i) : nullptr;
        const uint16_t* second = i + 1 < t.num_tokens ? row(i + 1) : nullptr;
        for (int n = 0; n < t.latent; n += 32, to += 2 * kValuePanelBytes) {
            const __m512i a = first != nullptr ? _mm512_loadu_si512(first + n) : __m512i{};
            const __m512i b = second != nullptr ? _mm512_loadu_si512(second + n) : __m512i{};
            _mm512_store_si512(to, _mm512_permutex2var_epi16(a, low, b));
            _mm512_store_si512(to + kValuePanelBytes, _mm512_permutex2var_epi16(a, high, b));
        }
    }
}

// scores [tokens][16] = KV rows · packed Q, 64 tokens at a time.
void score_tile_amx(const MlaTile& t, const MlaGroup& g, float* scores) {
    memory_fence();
    const int64_t stride = t.width * 2;
    const int steps = t.width / 32;
    const int runs = (t.num_tokens + kMlaRunTokens - 1) / kMlaRunTokens;
    const auto* q = static_cast<const char*>(g.q);
    const auto k = [&](int run) AERIE_LAMBDA { return static_cast<const char*>(t.runs[run]); };
    int run = 0;
    for (; run + 4 <= runs; run += 4) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int s = 0; s < steps; ++s) {
            _tile_loadd(6, q + s * kTileBytes, 64);
            _tile_loadd(4, k(run) + s * 64, stride);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(5, k(run + 1) + s * 64, stride);
            _tile_dpbf16ps(1, 5, 6);
            _tile_loadd(7, k(run + 2) + s * 64, stride);
            _tile_dpbf16ps(2, 7, 6);
            _tile_loadd(4, k(run + 3) + s * 64, stride);
            _tile_dpbf16ps(3, 4, 6);
        }
        float* to = scores + run * 256;
        _tile_stored(0, to, 64);
        _tile_stored(1, to + 256, 64);
        _tile_stored(2, to + 512, 64);
        _tile_stored(3, to + 768, 64);
    }
    for (; run < runs; ++run) {
        _tile_zero(0);
        for (int s = 0; s < steps; ++s) {
            _tile_loadd(6, q + s * kTileBytes, 64);
            _tile_loadd(4, k(run) + s * 64, stride);
            _tile_dpbf16ps(0, 4, 6);
        }
        _tile_stored(0, scores + run * 256, 64);
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

// probabilities [tokens][16] float32 → [16][128] bfloat16; tokens past num_tokens are zero up to a
// multiple of 32.
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
        unroll<16>([&](auto c) AERIE_LAMBDA { _mm512_store_si512(to + c * 128 + i, r[c]); });
    }
}

void rescale(const MlaTile& t, MlaGroup& g, F16 factor) {
    alignas(64) float factors[16];
    store(factors, factor);
    for (int c = 0; c < g.num_cols; ++c) {
        if (factors[c] == 1.0f) continue;
        float* acc = g.acc + c * t.latent;
        for (int n = 0; n < t.latent; n += 16) store(acc + n, load(acc + n) * set1(factors[c]));
    }
}

// acc += probabilities · V. 64 latents at a time, 32 tokens a step.
void value_tile_amx(const MlaTile& t, MlaGroup& g, const uint16_t* probabilities, const char* values) {
    memory_fence();
    const int steps = (t.num_tokens + 31) / 32;
    const int64_t stride = t.latent * 4;
    int n = 0;
    for (; n + 64 <= t.latent; n += 64) {
        float* acc = g.acc + n;
        const char* v = values + n / 16 * kValuePanelBytes;
        if (t.first) {
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
        } else {
            _tile_loadd(0, acc, stride);
            _tile_loadd(1, acc + 16, stride);
            _tile_loadd(2, acc + 32, stride);
            _tile_loadd(3, acc + 48, stride);
        }
        for (int s = 0; s < steps; ++s, v += kTileBytes) {
            _tile_loadd(4, probabilities + s * 32, 256);
            _tile_loadd(5, v, 64);
            _tile_dpbf16ps(0, 4, 5);
            _tile_loadd(6, v + kValuePanelBytes, 64);
            _tile_dpbf16ps(1, 4, 6);
            _tile_loadd(7, v + 2 * kValuePanelBytes, 64);
            _tile_dpbf16ps(2, 4, 7);
            _tile_loadd(5, v + 3 * kValuePanelBytes, 64);
            _tile_dpbf16ps(3, 4, 5);
        }
        _tile_stored(0, acc, stride);
        _tile_stored(1, acc + 16, stride);
        _tile_stored(2, acc + 32, stride);
        _tile_stored(3, acc + 48, stride);
    }
    for (; n < t.latent; n += 16) {
        const char* v = values + n / 16 * kValuePanelBytes;
        if (t.first)
            _tile_zero(0);
        else
            _tile_loadd(0, g.acc + n, stride);
        for (int s = 0; s < steps; ++s) {
            _tile_loadd(4, probabilities + s * 32, 256);
            _tile_loadd(5, v + s * kTileBytes, 64);
            _tile_dpbf16ps(0, 4, 5);
        }
        _tile_stored(0, g.acc + n, stride);
    }
}

void mla_tile_amx(const MlaTile& t) {
    auto* scores = static_cast<float*>(t.scratch);
    auto* probabilities = reinterpret_cast<uint16_t*>(scores + kMlaScoreBytes / 4);  // [16][128]
    auto* values = reinterpret_cast<char*>(scores + 2 * kMlaScoreBytes / 4);
    pack_values_fast(t, values);
    const TileConfig whole;
    whole.load();
    for (int i = 0; i < t.num_groups; ++i) {
        MlaGroup& g = t.groups[i];
        score_tile_amx(t, g, scores);
        const F16 factor = softmax_tile(t, g, scores);
        if (!t.first) rescale(t, g, factor);
        transpose_probabilities(t.num_tokens, scores, probabilities);
        if (g.num_cols < kMlaGroupCols) {  // fewer rows take less time
            TileConfig fewer;
            for (int tile : {0, 1, 2, 3, 4}) fewer.rows[tile] = static_cast<uint8_t>(g.num_cols);
            fewer.load();
            value_tile_amx(t, g, probabilities, values);
            whole.load();
        } else {
            value_tile_amx(t, g, probabilities, values);
        }
    }
    _tile_release();
}

}  // namespace

const CpuOps& amx_ops() {
    static const CpuOps table = [] {
        CpuOps ops = avx512_ops();
        ops.linear_bf16 = linear_amx;
        ops.mla_tile_bf16 = mla_tile_amx;
        return ops;
    }();
    return table;
}

}  // namespace aerie::kernels
