// AttentionWeights: what one attention rank needs of the model: everything but the routed experts.
// Heads, o_proj's columns and the LM head's rows are its tp slice; the rest is whole. All of it is
// owned by the WeightStore and shared with the process's other ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "config/model_config.h"
#include "model/weight_store.h"
#include "tensor/stream.h"

namespace aerie::model {

// Part `index` of `n` things in `size` parts: contiguous, in order, sizes differ by at most one.
struct Range {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t size() const { return end - begin; }
};
constexpr Range share_of(int64_t n, int size, int index) {
    return {n * index / size, n * (index + 1) / size};
}

// H: heads of the slice. Shapes are [N, K], as kernels/linear.h has them.
struct LayerWeights {
    const Tensor* input_norm = nullptr;           // f32 [hidden]
    const Tensor* post_attention_norm = nullptr;  // f32 [hidden]

    // q_a above kv_a: [q_lora_rank + latent, hidden]; kv_a alone where q_lora_rank is 0.
    const kernels::LinearWeight* q_a_kv_a = nullptr;
    const Tensor* q_a_norm = nullptr;   // f32 [q_lora_rank]; null where that is 0
    const Tensor* kv_a_norm = nullptr;  // f32 [kv_lora_rank]
    const kernels::LinearWeight* q_b = nullptr;     // [H · qk_head_dim, q_lora_rank or hidden]
    const KvHeads* kv_heads = nullptr;              // [H] each of W_UK and W_UV
    const kernels::LinearWeight* o = nullptr;       // [hidden, H · v_head_dim]

    bool is_moe = false;
    const kernels::LinearWeight* gate = nullptr;         // [n_routed_experts, hidden]; MoE
    const Tensor* gate_bias = nullptr;       // f32 [n_routed_experts]; noaux_tc only
    const kernels::ExpertWeights* shared = nullptr;      // MoE; null where n_shared_experts is 0
    const kernels::ExpertWeights* dense = nullptr;       // not MoE
};

struct MtpWeights {
    const Tensor* embed_norm = nullptr;        // f32 enorm [hidden]
    const Tensor* hidden_norm = nullptr;       // f32 hnorm [hidden]
    const kernels::LinearWeight* eh_proj = nullptr;        // [hidden, 2 · hidden]
    const Tensor* shared_head_norm = nullptr;  // f32 [hidden]
};

struct AttentionWeights {
    int tp = 0;
    int tp_size = 1;
    bool has_mtp = false;
    bool can_expand = false;  // kv_heads hold what expanding takes
    int num_heads = 0;        // of the slice
    Range vocab;        // rows of the LM head

    const Tensor* embedding = nullptr;              // [vocab_size, hidden]
    const Tensor* final_norm = nullptr;  // f32 [hidden]
    const kernels::LinearWeight* lm_head = nullptr;  // [vocab.size(), hidden]
    std::vector<LayerWeights> layers;                // [num_hidden_layers (+ 1 with MTP)]
    MtpWeights mtp;
};

struct AttentionSlice {
    int tp = 0;
    int tp_size = 1;       // divides num_attention_heads
    bool with_mtp = false;  // also the MTP layer, number num_hidden_layers
    // Also what prefill needs whose attention is not absorbed. Ranks that have it use it. A card
    // expands heads of 128 + 64 and values of 128 alone (kernels::MlaStep::expands): others are left
    // absorbed there.
    bool can_expand = false;
};

// Reads and packs what `store` does not hold yet.
Result<AttentionWeights> load_attention_weights(const ModelConfig& config, const AttentionSlice& slice,
                                                WeightStore& store, Stream& stream);

}  // namespace aerie::model
