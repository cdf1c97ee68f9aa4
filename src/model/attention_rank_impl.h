// What attention_rank.cc, mtp.cc, attention_block.cc, ffn_block.cc and logits.cc share.
#pragma once

#include <optional>
#include <vector>

#include "kernels/experts.h"
#include "kernels/kv_cache.h"
#include "kernels/linear.h"
#include "model/attention_rank.h"
#include "model/step_numbers.h"
#include "tensor/pinned_buffer.h"
#include "tensor/tensor.h"

namespace aerie::model {

// R: rows of the step, O: own rows, T: rows of a tile, C: of a tile's cp share, H: heads of the rank.
struct Workspace {
    Workspace(const AttentionRankOptions& options, const StepLimits& limits);
    void add_card_buffers(const ModelConfig& config);
    size_t num_bytes() const;  // of the tensors

    Tensor x;       // [O, hidden] the residual stream
    Tensor h;       // [O, hidden] x after a norm
    Tensor hidden;  // [O, hidden] after the final norm
    Tensor all_hidden;  // [R, hidden] that of all ranks; empty without MTP or where the rank is alone
    Tensor sum;     // [O, hidden] f32, on a card the compute type: what the FFN or the experts add to x
    // [O, query_width + latent_dim]: what q_b multiplies (q_a, or h where q_lora_rank is 0), latent,
    // k_pe.
    Tensor qkv;
    Tensor all_qkv;  // [R, …] that of all ranks; empty where the rank is alone

    Tensor q;          // [T, H · qk_head_dim]
    Tensor absorbed;   // [T, H · latent_dim]; of rows that are expanded, nothing
    Tensor partial;    // [T, H · value width] f32; empty where cp_size is 1
    Tensor lse;        // [T, H] f32; likewise
    Tensor attended;   // [C, H · kv_lora_rank]; likewise
    Tensor values;     // [C, H · v_head_dim]
    Tensor projected;  // [C, hidden] f32, on a card the compute type: this rank's part of o_proj's sum

    Tensor gate_logits;   // [O, n_routed_experts] f32
    Tensor gate_ids;      // [O, num_experts_per_tok] i32
    Tensor gate_weights;  // [O, num_experts_per_tok] f32
    kernels::ExpertWorkspace ffn;

    Tensor logits_hidden;  // [logits rows, hidden]
    Tensor logits_part;    // [logits rows, the rank's vocabulary] f32; empty where tp_size is 1
    Tensor logits;         // [logits rows, vocab_size] f32; leader only
    // Of a card, what a step tells the host: [1, 2 · layers + 1] i64, each layer's begin and end of
    // attention, and then a kernels::Drawn, as large, for each logits row.
    Tensor told;
    PinnedBuffer told_to_host;
    PinnedBuffer logits_of_card;  // [logits rows, vocab_size] f32, what the leader reads of a card

    Tensor draft_input;  // [T, 2 · hidden] what eh_proj multiplies; empty without MTP
    std::vector<int32_t> hidden_of;  // [O] DraftInput's, of own rows

    std::vector<kernels::LinearTask> tasks;  // [H]
    std::vector<ConstView> views;            // of other ranks
    std::vector<const float*> others_lse;
};

struct AttentionRank::Impl {
    Impl(const AttentionRankOptions& options, const StepLimits& limits);

    // attention_rank.cc
    Status forward(const StepInput& input, LayerObserver* observer);
    // What kernels of this step read: with the input laid out, before any of them. padded_rows: of the
    // graph that it runs as; 0: none.
    void prepare(const StepInput& input, int64_t padded_rows = 0);
    // All kernels of a step that is prepared.
    Status compute(const StepInput& input, LayerObserver* observer);
    void embed();
    // x → the residual stream after these layers, all but what the last leaves in `sum` or in flight.
    Status run_layers(Range layers, Phase phase, LayerObserver* observer);
    // The hidden rows after the last norm, and the logits.
    Status finish(const Tensor& norm, const StepInput& input);
    // x += what the layer before left in `sum` or in flight; h = norm(x).
    Status finish_ffn(int microbatch, const Tensor& norm, Tensor& into);
    void abandon(const std::string& why);

    // card_steps.cc: a step of the card as a graph.
    struct StepGraph {
        int64_t rows = 0;
        card::Graph graph;
    };
    const StepGraph* graph_for(const StepInput& input) const;
    int64_t num_stamps() const { return 2 * config.num_hidden_layers + 1; }
    void stamp(int64_t at);  // on a CPU nothing
    void report_times(LayerObserver& observer);
    int64_t longest_sequence() const {  // that the pool and the rope table have room for
        return std::min(options.rope->max_position(),
                        options.pool->num_blocks() * int64_t{options.pool->page_size()});
    }
    // For how many tokens the card has keys and values per head at a time: 1 GiB at 128 heads.
    int64_t piece_tokens() const {
        constexpr int64_t kMost = 16384, kLeast = 256;
        return std::clamp(longest_sequence(), kLeast, kMost);
    }
    Status warm_up();
    Status make_graphs();

    // mtp.cc
    Status check(const DraftInput& input) const;
    Status draft(const DraftInput& input, LayerObserver* observer);
    void choose_hidden(std::span<const int32_t> hidden_of);
    void join_inputs(ConstView given);
    void norm_hidden(std::span<const int32_t> hidden_of, ConstView given, View into);

    // attention_block.cc: h → x after attention, h = post-attention norm.
    Status attention(int layer, int microbatch, LayerObserver* observer);
    void project_down(int layer, Range own);
    Status gather_qkv(int microbatch);
    Status write_kv(int layer, Range rows);
    kernels::KvPool pool_of(int layer) const;
    Status attend_tile(int layer, int64_t tile);
    void prepare_queries(const LayerWeights& w, int64_t tile);
    void absorb_queries(const LayerWeights& w, View q, const int32_t* positions, View absorbed);
    void attend_own_blocks(int layer, int64_t tile, bool expanded);
    Status merge_cp(int64_t tile);
    void project_up(const LayerWeights& w, int64_t tile);
    Status add_attention(const LayerWeights& w, int64_t tile);

    // ffn_block.cc: h → `sum`, and the experts' part in flight.
    Status ffn(int layer, int microbatch, Phase phase);
    Status route(int layer, int microbatch, Phase phase);

    // logits.cc
    Status compute_logits(const StepInput& input);
    ConstView logits() const;
    std::span<const kernels::Drawn> drawn() const;
    Status gather_all_hidden(int64_t num_rows);
    Status gather_hidden(std::span<const int32_t> rows);
    void fetch_results(const StepInput& input);
    Status gather_logits(int64_t num_rows);

    void end_of(StepOp op) {
        if (options.profile != nullptr) options.profile->end_of(op);
    }
    // The results of attention: latents, or values where it is expanded.
    Tensor& attended(bool expanded) { return expanded ? ws.values : ws.attended; }
    int64_t attended_width(bool expanded) const {
        return int64_t{weights.num_heads} * (expanded ? config.v_head_dim : config.kv_lora_rank);
    }
    bool alone() const { return place.size() == 1; }
    View own(Tensor& tensor, Range rows) { return tensor.view().slice_rows(rows.begin, rows.end); }
    // q, latent and k_pe of all rows of the step.
    ConstView all_qkv() { return alone() ? ws.qkv.view() : ws.all_qkv.view(); }
    // Of all rows of the last pass; with MTP.
    ConstView all_hidden() {
        return (alone() ? ws.hidden : ws.all_hidden).first_rows(num_hidden_rows);
    }
    // Rows of these tiles out of the buffers that the ranks show, which are laid out as `mine`.
    void copy_from_all(std::span<const void* const> shown, const Tensor& mine, Range tiles,
                       Tensor& into);

    AttentionRankOptions options;
    const ModelConfig& config;
    const AttentionWeights& weights;
    RankPlaceInReplica place;
    Stream& stream;
    StepLayout layout;
    StepNumbers numbers;
    std::optional<kernels::MlaStep> mla;  // of the card
    Workspace ws;
    std::vector<StepGraph> graphs;    // by ascending rows
    uint64_t num_graph_steps = 0, num_eager_steps = 0;
    int64_t query_width;              // columns of qkv before the latent
    bool in_flight[kMaxMicrobatches] = {};  // a dispatch waits for its combine
    int64_t num_logits_rows = 0;
    size_t num_drawn = 0;  // of the last step, rows of logits that might have been
    int64_t num_hidden_rows = 0;  // of all_hidden()
};

// Columns of qkv before the latent.
inline int64_t query_width_of(const ModelConfig& config) {
    return config.q_lora_rank > 0 ? config.q_lora_rank : config.hidden_size;
}

}  // namespace aerie::model
