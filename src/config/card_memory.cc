#include "config/card_memory.h"

#include <algorithm>

namespace aerie {
namespace {

constexpr int64_t kBF16 = 2, kF32 = 4, kI32 = 4, kI64 = 8;  // bytes
constexpr int64_t kUnit = int64_t{2} << 20;                 // of the card's allocator
constexpr int64_t kProcessors = 132;                        // of an H200

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Adds up allocations.
struct Sum {
    int64_t bytes = 0;
    void add(int64_t num_bytes) { bytes += card_allocation(num_bytes); }
};

// kernels/cuda/fp8_gemm.h's Fp8Rows.
int64_t fp8_rows_bytes(int64_t rows, int64_t cols) {
    const int64_t padded = round_up(rows, 128);
    return padded * cols + cols / 128 * padded * kF32;
}

int64_t shared_inner(const ModelConfig& m) {
    return int64_t{m.n_shared_experts} * m.moe_intermediate_size;
}
// The widest network that all rows go through.
int64_t local_inner(const ModelConfig& m) {
    const bool dense = m.num_moe_layers() < m.num_hidden_layers;
    return std::max<int64_t>(dense ? m.intermediate_size : 0, shared_inner(m));
}

bool quantises(const ModelConfig& m, bool deterministic) {
    return !deterministic && m.quantization_config.has_value();
}

// Of the block tables of a step's sequences.
int64_t table_entries(const CardStep& s) {
    const int64_t longest = std::max<int64_t>(1, s.positions);
    const int64_t sequences = std::max(s.sequences, ceil_div(s.rows, longest));
    return sequences * ceil_div(s.rope_positions, s.page_size);
}

// kernels/cuda/mla_plan.h: works, merges and block tables; and the parts of split rows.
void add_attention_plan(Sum& sum, int64_t heads, const CardStep& s) {
    constexpr int64_t kBlockRows = 64, kPrefillRows = 2048, kIntsOfWork = 8, kIntsOfMerge = 5;
    const auto ints_of = [&](int64_t rows) {
        const int64_t width = heads > kBlockRows || rows >= kPrefillRows ? 2 : 1;
        const int64_t teams = kProcessors / width;
        const int64_t works = ceil_div(rows * heads, kBlockRows * width) + rows + teams;
        return teams + 1 + kIntsOfWork * works + kIntsOfMerge * kProcessors;
    };
    const int64_t ints =
        std::max(ints_of(s.rows), ints_of(std::min(s.rows, kPrefillRows - 1))) + table_entries(s);
    sum.add(ints * kI32);
    if (s.deterministic) return;
    const int64_t partial_rows = 2 * kProcessors * kBlockRows;
    sum.add(partial_rows * 512 * kBF16);
    sum.add(partial_rows * kF32);
}

// Tokens that keys and values per head are in memory for; 0: prompts are absorbed.
int64_t piece_tokens(const ModelConfig& m, const CardStep& s) {
    if (s.deterministic || !card_expands(m)) return 0;
    return std::clamp<int64_t>(s.positions, 256, 16384);
}

// kernels/cuda/mla_step.h: the plan of expanded rows, their keys and values, and results.
void add_expansion(Sum& sum, const ModelConfig& m, int64_t heads, const CardStep& s) {
    constexpr int64_t kTileRows = 128, kIntsOfSegment = 3, kIntsOfTile = 4;
    const int64_t piece = piece_tokens(m, s);
    if (piece == 0) return;
    const int64_t blocks = table_entries(s);
    const int64_t cuts = blocks * s.page_size / (piece - kTileRows + 1);
    sum.add((blocks + kIntsOfSegment * (s.rows + cuts) +
             kIntsOfTile * (s.rows + ceil_div(s.rows, kTileRows) * cuts)) *
            kI32);
    sum.add(piece * m.latent_dim() * kBF16);
    sum.add(piece * heads * (m.qk_nope_head_dim + m.v_head_dim) * kBF16);
    sum.add(s.rows * heads * m.v_head_dim * kBF16);
    for (int i = 0; i < 2; ++i) sum.add(s.rows * heads * kF32);
}

// What Stream::card_scratch comes to.
void add_scratch(Sum& sum, const ModelConfig& m, int64_t heads, const CardStep& s) {
    const int64_t own = s.rows, inner = local_inner(m);
    const int64_t widest = std::max<int64_t>({m.hidden_size, m.q_lora_rank, heads * m.v_head_dim});
    sum.add(std::max(quantises(m, s.deterministic) ? fp8_rows_bytes(own, widest) : 0,
                     fp8_rows_bytes(piece_tokens(m, s), m.kv_lora_rank)));  // kGemm
    if (quantises(m, s.deterministic)) {
        sum.add(round_up(own * 2 * inner * kBF16, 256) +
                fp8_rows_bytes(own, inner));  // kActivations
    } else {
        sum.add(round_up(own * 2 * inner * kBF16, 256) + own * inner * kBF16);
    }
    if (s.num_local_experts > 0)
        sum.add(card_expert_scratch_bytes(m, own, s.num_local_experts, s.deterministic));
}

}  // namespace

bool card_expands(const ModelConfig& m) { return m.qk_nope_head_dim == 128 && m.v_head_dim == 128; }

int64_t card_allocation(int64_t num_bytes) {
    return num_bytes >= kUnit / 2 ? round_up(num_bytes, kUnit) : round_up(num_bytes, 512);
}

int64_t card_expert_scratch_bytes(const ModelConfig& m, int64_t rows, int num_experts,
                                  bool deterministic) {
    const int64_t hidden = m.hidden_size, inner = m.moe_intermediate_size;
    const int64_t choices = rows * m.num_experts_per_tok;
    if (!quantises(m, deterministic)) {
        const int64_t integers = choices * 3 * kI32 + num_experts * 3 * kI32;
        return integers + choices * (3 * inner * kBF16 + hidden * kF32);
    }
    const int64_t tile = choices / num_experts < 64 ? 64 : 128;
    const int64_t here = rows * std::min(m.num_experts_per_tok, num_experts);
    const int64_t capacity = round_up(here, tile) + std::min<int64_t>(here, num_experts) * tile;
    const int64_t first = std::max(fp8_rows_bytes(capacity, hidden) + capacity * 2 * inner * kBF16,
                                   capacity * hidden * kBF16);
    return first + fp8_rows_bytes(capacity, inner) + choices * 3 * kI32;
}

int64_t card_workspace_bytes(const ModelConfig& m, const CardStep& s) {
    const int64_t size = int64_t{s.tp_size} * s.cp_size;
    const int64_t heads = ceil_div(m.num_attention_heads, s.tp_size), hidden = m.hidden_size;
    const int64_t own = ceil_div(s.rows, size), share = ceil_div(s.rows, s.cp_size);
    const int64_t qkv = (m.q_lora_rank > 0 ? m.q_lora_rank : hidden) + m.latent_dim();
    Sum sum;
    for (int i = 0; i < 4; ++i) sum.add(own * hidden * kBF16);  // x, h, hidden, sum
    sum.add(own * qkv * kBF16);
    if (size > 1) sum.add(s.rows * qkv * kBF16);
    sum.add(s.rows * heads * m.qk_head_dim() * kBF16);  // q
    sum.add(s.rows * heads * m.latent_dim() * kBF16);   // absorbed
    if (s.cp_size > 1) {
        sum.add(s.rows * heads * m.kv_lora_rank * kF32);  // partial
        sum.add(s.rows * heads * kF32);                   // lse
    }
    sum.add(share * heads * m.kv_lora_rank * kBF16);  // attended
    sum.add(share * heads * m.v_head_dim * kBF16);    // values
    sum.add(share * hidden * kBF16);                  // projected
    sum.add(own * m.n_routed_experts * kF32);
    sum.add(own * m.num_experts_per_tok * kI32);
    sum.add(own * m.num_experts_per_tok * kF32);
    sum.add(s.logits_rows * hidden * kBF16);
    if (s.tp_size > 1) sum.add(s.logits_rows * ceil_div(m.vocab_size, s.tp_size) * kF32);
    sum.add(s.logits_rows * m.vocab_size * kF32);
    if (s.mtp) {
        if (size > 1) sum.add(s.rows * hidden * kBF16);  // all_hidden
        sum.add(own * 2 * hidden * kBF16);               // draft_input
    }
    return sum.bytes;
}

int64_t card_step_bytes(const ModelConfig& m, const CardStep& s) {
    // Of a layer, at most: 12 products and what quantises for them, norms, gate, experts,
    // attention.
    constexpr int64_t kNodesOfLayer = 32;
    const int64_t heads = ceil_div(m.num_attention_heads, s.tp_size);
    Sum sum;
    sum.bytes = card_workspace_bytes(m, s);
    sum.add(std::max({s.rows, s.logits_rows, int64_t{512}}) * (kI64 + 3 * kI32 + kDrawBytes));  // StepNumbers
    sum.add((2 * m.num_hidden_layers + 1 + s.logits_rows) * kI64);  // Workspace::told
    sum.add(s.rope_positions * m.qk_rope_head_dim * kF32);
    add_attention_plan(sum, heads, s);
    add_expansion(sum, m, heads, s);
    add_scratch(sum, m, heads, s);
    return sum.bytes + s.num_graphs * m.num_hidden_layers * kNodesOfLayer * kGraphNodeBytes;
}

}  // namespace aerie
