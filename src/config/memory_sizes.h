// Sizes in bytes of what one rank holds, from config.json alone: weights, and what its largest step
// needs. Arithmetic: model.md, section 5.
#pragma once

#include <algorithm>
#include <cstdint>

#include "config/card_memory.h"
#include "config/memory_plan.h"

namespace aerie {

class Sizes {
  public:
    Sizes(const Config& config, const ModelConfig& model) : config_(config), m_(model) {}

    int64_t compute_bytes() const { return config_.model.dtype == ComputeDtype::kFloat32 ? 4 : 2; }
    // Layers that are drafted with: the first MTP layer, however many the checkpoint has.
    int num_mtp() const {
        return config_.settings.enable_mtp ? std::min(m_.num_nextn_predict_layers, 1) : 0;
    }
    int decode_rows_each() const { return num_mtp() > 0 ? 1 + config_.settings.mtp_num_steps : 1; }

    bool gpu() const { return config_.device == DeviceChoice::kCuda; }
    // What an allocation takes.
    int64_t held(int64_t num_bytes) const { return gpu() ? card_allocation(num_bytes) : num_bytes; }
    int64_t plain(int64_t n, int64_t k) const { return held(n * k * compute_bytes()); }
    // One [n, k] matrix: FP8 with a scale a block where the checkpoint is quantised.
    int64_t matrix(int64_t n, int64_t k) const {
        if (!m_.quantization_config) return plain(n, k);
        const auto& q = *m_.quantization_config;
        const auto blocks = [](int64_t size, int block) { return (size + block - 1) / block; };
        return held(n * k) + held(4 * blocks(n, q.block_n) * blocks(k, q.block_k));
    }
    // gate above up, and down, of a network or of several stacked.
    int64_t ffn(int64_t inner, int64_t stacked = 1) const {
        return matrix(stacked * 2 * inner, m_.hidden_size) +
               matrix(stacked * m_.hidden_size, inner);
    }
    // Weights that every attention rank needs whole.
    int64_t replicated() const {
        const int64_t h = m_.hidden_size;
        const int64_t norms =
            2 * held(h * 4) + held(m_.q_lora_rank * 4) + held(m_.kv_lora_rank * 4);
        const int64_t projections = matrix(m_.q_lora_rank + m_.latent_dim(), h) + norms;
        const int64_t gate = plain(m_.n_routed_experts, h) + held(m_.n_routed_experts * 4);
        const int64_t shared = m_.n_shared_experts > 0
                                   ? ffn(int64_t{m_.n_shared_experts} * m_.moe_intermediate_size)
                                   : 0;
        const int64_t num_moe = m_.num_moe_layers() + num_mtp();
        return (m_.num_hidden_layers + num_mtp()) * projections + num_moe * (gate + shared) +
               (m_.num_hidden_layers - m_.num_moe_layers()) * ffn(m_.intermediate_size) +
               plain(m_.vocab_size, h) + num_mtp() * plain(h, 2 * h);
    }
    // Weights that are split over tp.
    int64_t split(int tp) const {
        const int64_t heads = (m_.num_attention_heads + tp - 1) / tp, h = m_.hidden_size;
        const int64_t q = matrix(heads * m_.qk_head_dim(), m_.q_lora_rank ? m_.q_lora_rank : h);
        // kv_b is used head by head (absorbed), so it is kept in the compute type.
        const int64_t kv_b = heads * (plain(m_.qk_nope_head_dim, m_.kv_lora_rank) +
                                      plain(m_.v_head_dim, m_.kv_lora_rank));
        // Without determinism a CPU also keeps W_UK as it makes keys, beside its transpose, and a card
        // all of kv_b.
        const int64_t k =
            deterministic() ? 0
            : !gpu()        ? heads * plain(m_.qk_nope_head_dim, m_.kv_lora_rank)
            : card_expands(m_)
                ? matrix(heads * (m_.qk_nope_head_dim + m_.v_head_dim), m_.kv_lora_rank)
                : 0;
        const int64_t o = matrix(h, heads * m_.v_head_dim);
        const int64_t head = plain((m_.vocab_size + tp - 1) / tp, h);
        return (m_.num_hidden_layers + num_mtp()) * (q + kv_b + k + o) + head;
    }
    int64_t experts(int ep_rank, int ep) const {
        const auto [begin, end] = experts_of(ep_rank, ep, m_.n_routed_experts);
        const int64_t inner = m_.moe_intermediate_size;
        return (m_.num_moe_layers() + num_mtp()) *
               (gpu() ? ffn(inner, end - begin) : (end - begin) * ffn(inner));
    }
    bool deterministic() const {
        return config_.settings.enable_deterministic_inference.value_or(true);
    }
    // Tokens of the largest step of one replica.
    int64_t step_tokens() const {
        const int chunk = config_.settings.chunked_prefill_size;
        return chunk > 0 ? chunk : config_.settings.context_length.value_or(0);
    }
    int64_t mailbox_rows(int tp, int cp) const { return (step_tokens() + tp * cp - 1) / (tp * cp); }
    int num_slots() const { return config_.ae_separation.microbatches.value_or(3); }

    // Gathered hidden states (compute type and fp32 sums), absorbed queries and attention outputs,
    // the dense MLP on this rank's share, logits, one combine slot a microbatch and expert rank,
    // and with MTP the hidden states of all rows.
    int64_t attention_activations(int tp, int cp, int ep, int num_running) const {
        const int64_t tokens = step_tokens(), c = compute_bytes(), h = m_.hidden_size;
        const int64_t heads = (m_.num_attention_heads + tp - 1) / tp;
        const int64_t own = mailbox_rows(tp, cp);
        return tokens * h * (2 * c + 4) +
               tokens / cp * heads * (m_.latent_dim() + m_.kv_lora_rank) * c +
               own * 2 * m_.intermediate_size * c +
               (int64_t{num_running} * decode_rows_each() +
                std::max(kPromptLogprobRows, config_.settings.page_size)) *
                   (m_.vocab_size + tp - 1) / tp * 4 +
               num_mtp() * tokens * h * c +
               num_slots() * std::min<int64_t>(ep, m_.num_experts_per_tok) * own * h * c;
    }
    // The largest step of a rank of a GPU; of `local_experts` routed experts on the same stream.
    CardStep card_step(const AttentionReplica& replica, int num_running, int local_experts) const {
        const int64_t context = config_.settings.context_length.value_or(0);
        return {.rows = step_rows_max(config_, replica.role, num_running),
                .logits_rows = logits_rows_max(config_, replica.role, num_running),
                .sequences = num_running,
                .positions = context,
                .rope_positions = context,
                .page_size = config_.settings.page_size,
                .tp_size = replica.tp_size,
                .cp_size = replica.cp_size,
                .num_local_experts = local_experts,
                .deterministic = deterministic(),
                .mtp = num_mtp() > 0,
                .num_graphs = local_experts > 0 ? std::ssize(graph_rows_of(num_running)) : 0};
    }
    // One group's rows through the experts, and one dispatch slot a microbatch and attention rank.
    // dispatch_rows: of the largest one.
    int64_t expert_activations(int64_t mailbox_rows_all, int64_t dispatch_rows,
                               int num_experts) const {
        const int64_t c = compute_bytes(), h = m_.hidden_size;
        const int64_t rows = config_.ae_separation.expert_rows_max;
        const int64_t mailboxes = num_slots() * mailbox_rows_all * h * c;
        if (gpu()) {  // mailboxes are the host's (expert/card_experts.h)
            const int64_t most = std::max(rows, dispatch_rows);
            return 2 * held(most * h * c) + 2 * held(most * m_.num_experts_per_tok * 4) +
                   held(card_expert_scratch_bytes(m_, most, num_experts, deterministic()));
        }
        return rows * m_.num_experts_per_tok * (2 * m_.moe_intermediate_size + h) * c + mailboxes;
    }

  private:
    const Config& config_;
    const ModelConfig& m_;
};

}  // namespace aerie
