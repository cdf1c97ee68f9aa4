// The table of inner loops that each instruction set fills in. Plain structs and pointers only:
// this header is compiled with every set's flags, so it must define no function that a linker could
// take from one translation unit for another.
#pragma once

#include <cstdint>

namespace aerie::kernels {

struct RowIn {
    const void* data;  // [cols]
    bool bf16;         // else float32
};
struct RowOut {
    void* data;
    bool bf16;
};

struct PairOfRow {  // the layout of WeightedRow
    int32_t row;
    float weight;
};

// Packed matrices (weights, Q, V) are cut into panels of 16 columns; a panel is [K][16] float32, or
// [ceil(K/2)][16][2] bfloat16, which is at once an AVX512-BF16 operand and an AMX tile.
inline constexpr int kPanelCols = 16;

// y[m, n] = x[m, k] · w[n, k]ᵀ for some rows and some panels.
struct LinearBlock {
    const void* x;          // compute type
    int64_t x_stride;       // elements
    const int32_t* x_rows;  // [m] or null
    int64_t m;
    const void* w;         // first panel, compute type
    int64_t panel_stride;  // bytes
    int64_t k;
    int64_t n;  // columns; the last panel may be partial
    void* y;
    int64_t y_stride;  // elements
    bool y_bf16;
};

// One panel of FP8 weights in the order of the compute type's panel.
struct DequantPanel {
    const uint8_t* packed;
    const float* scales;  // [runs][16]
    int64_t first_run;    // length in K of the first run; the others are 128
    int64_t k;            // padded length of a panel
    void* out;            // bfloat16 or float32
};

inline constexpr int kMlaGroupCols = 16;  // columns = (row, head) pairs that are computed together
inline constexpr int kMlaRunTokens = 16;  // tokens that must be contiguous in memory
inline constexpr int kMlaTile = 256;      // tokens, at most
inline constexpr int kMlaMaxRuns = kMlaTile / kMlaRunTokens;

// One group of columns and what it has seen so far. All of it float32.
struct MlaGroup {
    const void* q;                 // packed panel [key_dim][16], compute type
    int num_cols;                  // the others are zero
    float* max;                    // [16] base-2, of scaled scores
    float* sum;                    // [16]
    float* acc;                    // [value_dim / 16][16 columns][16 values]
    int32_t limit[kMlaGroupCols];  // tokens of the tile that each column sees
    int num_tokens;                // the largest of them; at least 1
};

struct MlaTile {
    MlaGroup* groups;
    int num_groups;
    // [16, stride] each, compute type: a token's key at 0, its value at value_begin (absorbed: the
    // value, the latent, is the key's beginning). Zero past num_tokens.
    const void* runs[kMlaMaxRuns];
    int stride;
    int key_dim;  // this and value_dim are multiples of 32
    int value_begin;
    int value_dim;
    int num_tokens;  // that some group sees
    bool first;      // of its chunk: max, sum and acc are overwritten
    float scale;     // times log2(e)
    void* scratch;   // mla_scratch_bytes(value_dim)
};

inline constexpr int64_t kMlaScoreBytes = kMlaTile * kMlaGroupCols * 4;
// Scores and probabilities of two groups, and the tile's values in another order, with room between
// panels.
constexpr int64_t mla_scratch_bytes(int value_dim) {
    return 4 * kMlaScoreBytes + kMlaTile * static_cast<int64_t>(value_dim) * 4 + 64 * value_dim;
}

struct CpuOps {
    void (*linear_f32)(const LinearBlock&);
    void (*linear_bf16)(const LinearBlock&);
    void (*dequant_f32)(const DequantPanel&);
    void (*dequant_bf16)(const DequantPanel&);

    void (*rms_norm)(RowIn x, const float* weight, float eps, int64_t cols, RowOut y);
    void (*sum)(const RowIn* parts, int num_parts, int64_t cols, RowOut y);
    void (*silu_mul)(RowIn gate, RowIn up, int64_t cols, RowOut y);
    // y = (overwrite ? 0 : y) + Σ weight · x[row], x's rows x_stride bytes apart.
    void (*accumulate)(RowIn x, int64_t x_stride, const PairOfRow* pairs, int num_pairs,
                       bool overwrite, int64_t cols, RowOut y);
    void (*rope)(RowIn x, const float* cos_sin, int dim, RowOut y);
    void (*sigmoid)(const float* x, int64_t n, float* y);
    void (*exp)(const float* x, float minus, int64_t n, float* y);  // y = exp(x − minus)

    void (*mla_tile_f32)(const MlaTile&);
    void (*mla_tile_bf16)(const MlaTile&);
    // into = into joined with from; elementwise.
    void (*mla_merge)(MlaGroup& into, const MlaGroup& from, int value_dim);
    // out [value_dim] = one column's acc · factor; acc points at the column's first 16 values.
    // Which values those are is the tile function's own choice.
    void (*mla_finish_f32)(const float* acc, float factor, int64_t value_dim, RowOut out);
    void (*mla_finish_bf16)(const float* acc, float factor, int64_t value_dim, RowOut out);
};

const CpuOps& plain_ops();
const CpuOps& avx2_ops();
const CpuOps& avx512_ops();
const CpuOps& amx_ops();

const CpuOps& ops();  // of the instruction set in use

}  // namespace aerie::kernels
