// Multi-head latent attention over a paged KV pool.
//
// Absorbed: W_UK has gone into q, whose keys and values are then the latents themselves, and the
// result is a sum of latents. Expanded: each head's keys and values are made from the latents here,
// a tile of tokens at a time, once for many rows of a sequence. Absorbed costs fewer operations for
// few rows over a long context, expanded for many.
//
// Arithmetic, for one query row and head (a column): local tokens are taken in ascending order in
// chunks of kMlaChunkTokens, a chunk in tiles of kMlaTileTokens. Scores q·k (fp32) are multiplied
// by scale; a tile's probabilities are exp(score − running maximum), added up in fp32 before, and
// rounded to the compute type for, the product with the values, which adds in fp32. A chunk's
// result (maximum, sum, sum of values) is merged into that of the chunks before it. Masked tokens
// contribute exact zeros. Expanded keys and values are rounded to the compute type. So a row's bits
// depend on q, its KV and its position only: not on the chunk of the prompt it is computed in,
// other sequences, page size, or threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tensor/stream.h"
#include "tensor/view.h"

namespace aerie::kernels {

class LinearWeight;

inline constexpr int kMlaTileTokens = 256;
inline constexpr int kMlaChunkTokens = 512;

struct MlaSequence {
    int32_t first_row = 0;  // of q, out and lse
    int32_t num_rows = 0;   // consecutive tokens
    int32_t first_position =
        0;  // of the first row; row i attends to positions <= first_position + i
    // This cp rank's blocks: local block j holds the tokens of global block j · cp_size + cp_rank.
    // As many as positions < first_position + num_rows touch.
    const int32_t* blocks = nullptr;
};

// What the attention of all layers of a step has in common, on the card: where each row's KV lies,
// and how the work is divided, for the sequences that are absorbed and for those that are expanded.
// On a CPU there is nothing to prepare. All memory is taken at construction.
//
// Expanded on the card: keys and values are made for a piece of tokens at a time, and are rounded
// to bfloat16; what rows found in several pieces is rounded, and joined piece by piece. A row's
// bits depend on how its sequence was cut.
//
// In a CUDA graph: prepare() with the graph's number of rows, capture the calls of mla_attention;
// before each replay prepare() with that number of rows, outside of the graph on the same stream.
// Kernels, grids and addresses are functions of the shape, the limits and that number alone.
class MlaStep {
  public:
    struct Limits {
        int64_t max_rows = 0;    // of a step
        int64_t max_blocks = 0;  // entries of all block tables of a step together
        // For how many tokens keys and values per head are in memory at a time, 512 bytes a head
        // and token; at least 256. 0: no sequence is expanded.
        int64_t piece_tokens = 0;
    };
    struct Shape {
        int heads = 1;  // divides 128
        int page_size = 64;
        int latent_dim = 512;  // alone
        int rope_dim = 64;     // alone
        // A row's bits depend on its own past alone, not on the chunk of the prompt it is computed
        // in, other sequences or page size. Else a long past is cut where it fills the card best,
        // and the last bit of a result changes with the step.
        bool deterministic = false;
    };
    // Whether heads of these dimensions can be expanded.
    static constexpr bool expands(int nope_dim, int value_dim) {
        return nope_dim == 128 && value_dim == 128;
    }

    MlaStep(const Limits& limits, const Shape& shape);
    ~MlaStep();
    // Reads the sequences, which are the host's with their blocks, and sends to the card what its
    // kernels need; the sequences may go when it returns. cp_size is 1. num_rows: the absorbed rows
    // that the step's graph was captured for, as many as the sequences' at least; 0: as many. Waits
    // only for the copy of the step before the last.
    void prepare(Stream& stream, std::span<const MlaSequence> absorbed, int64_t num_rows = 0,
                 std::span<const MlaSequence> expanded = {});

    struct Impl;
    Impl& impl() const { return *impl_; }

  private:
    std::unique_ptr<Impl> impl_;
};

struct MlaArgs {
    // [rows, heads · key_dim] compute type. key_dim: absorbed, latent_dim + rope_dim; expanded,
    // expand_k's n + rope_dim.
    ConstView q;
    const void* kv_layer = nullptr;  // [num_blocks, page_size, latent_dim + rope_dim] compute type
    int page_size = 64;
    int latent_dim = 512;  // multiples of 32, at most 1024 and 256
    int rope_dim = 64;
    int heads = 1;
    int cp_rank = 0;
    int cp_size = 1;
    float scale = 1.0f;
    std::span<const MlaSequence> sequences;  // on the card: those that `step` was prepared with
    const MlaStep* step = nullptr;           // the card's
    // All null: absorbed. On a CPU [heads] weights [any, latent_dim] of each, of which key_dim and
    // expand_v's n must be multiples of 32.
    const LinearWeight* expand_k = nullptr;
    const LinearWeight* expand_v = nullptr;
    // On the card one of all heads, [heads · (128 + 128), latent_dim]: a head's keys, then its
    // values.
    const LinearWeight* expand_kv = nullptr;
    // [rows, heads · value_dim] float32 or compute type; overlaps no input. value_dim: absorbed,
    // latent_dim; expanded, expand_v's n. Only the sequences' rows are written, of lse too.
    View out;
    // [rows, heads] natural log of the sum of exp(scores); may be null, which it is where the card
    // expands.
    float* lse = nullptr;
};

// KV of the rows themselves must have been written before. A row that has no local token gets out 0
// and lse −inf.
void mla_attention(Stream& stream, const MlaArgs& args);

// Joins the results of cp ranks, in cp order: out = Σ partial · exp(lse − max lse) / Σ exp(lse −
// max lse), fp32, rounded once. partials: [rows, heads · value_dim] float32 each; lse: [rows,
// heads] each.
struct MlaMergeArgs {
    std::span<const ConstView> partials;
    std::span<const float* const> lse;
    int heads = 1;
    View out;  // [rows, heads · value_dim]; may be one of the partials
};
void mla_merge(Stream& stream, const MlaMergeArgs& args);

}  // namespace aerie::kernels
