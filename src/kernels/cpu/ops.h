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
    const void* q;                 // packed panel [latent + rope][16], compute type
    int num_cols;                  // the others are zero
    float* max;                    // [16] base-2, of scaled scores
    float* sum;                    // [16]
    float* acc;                    // [latent / 16][16 columns][16 latents]
    int32_t limit[kMlaGroupCols];  // tokens of the tile that each column sees
};

struct MlaTile {
    MlaGroup* groups;
    int num_groups;
    const void* runs[kMlaMaxRuns];  // [16, latent + rope] each; zero past num_tokens
    int num_tokens;                 // that some column sees; at least 1
    bool first;                     // of its chunk: max, sum and acc are overwritten
    int latent;
    int width;      // latent + rope
    float scale;    // times log2(e)
    void* scratch;  // mla_scratch_bytes()
};

inline constexpr int64_t kMlaScoreBytes = kMlaTile * kMlaGroupCols * 4;
// Scores and probabilities of two groups, and the tile's KV in another order, with room between
// panels.
constexpr int64_t mla_scratch_bytes(int width) {
    return 4 * kMlaScoreBytes + kMlaTile * static_cast<int64_t>(width) * 4 + 64 * width;
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
    void (*mla_merge)(MlaGroup& into, const MlaGroup& from, int latent);
    // out [latent] = one column's acc · factor; acc points at the column's first 16 values. Which
    // latents those are is the tile function's own choice.
    void (*mla_finish_f32)(const float* acc, float factor, int64_t latent, RowOut out);
    void (*mla_finish_bf16)(const float* acc, float factor, int64_t latent, RowOut out);
};

const CpuOps& plain_ops();
const CpuOps& avx2_ops();
const CpuOps& avx512_ops();
const CpuOps& amx_ops();

const CpuOps& ops();  // of the instruction set in use

}  // namespace aerie::kernels
