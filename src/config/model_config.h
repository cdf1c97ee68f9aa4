// ModelConfig: what a model folder's config.json and generation_config.json say, with the names of
// config.json. Everything is read from the files; nothing is assumed from the model's name. A value
// that aerie does not support is an error that names the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace aerie {

enum class ScoringFunc { kSigmoid, kSoftmax };
enum class TopkMethod { kNoauxTc, kGroupLimitedGreedy, kGreedy };

// rope_scaling of type "yarn".
struct YarnScaling {
    double factor = 1;
    int original_max_position_embeddings = 0;  // tokens
    double beta_fast = 32, beta_slow = 1;
    double mscale = 1, mscale_all_dim = 0;
};

// quantization_config of method "fp8": e4m3 weights with one scale a block.
struct Fp8Quantization {
    int block_n = 128, block_k = 128;                 // weight_block_size
    bool scale_ue8m0 = false;                         // scale_fmt "ue8m0": powers of two
    std::vector<std::string> modules_to_not_convert;  // tensor name prefixes left in bf16
};

// generation_config.json: used where a request gives no value of its own.
struct GenerationDefaults {
    std::optional<double> temperature, top_p, min_p, repetition_penalty;
    std::optional<int> top_k;
};

struct ModelConfig {
    std::vector<std::string> architectures;
    std::string model_type;   // "deepseek_v3", "deepseek_v2", "kimi_k2", …
    std::string torch_dtype;  // of what is not quantised

    int vocab_size = 0;
    int hidden_size = 0;
    int intermediate_size = 0;      // dense layers
    int moe_intermediate_size = 0;  // one expert
    int num_hidden_layers = 0;      // without MTP layers
    int first_k_dense_replace = 0;
    int moe_layer_freq = 1;
    int num_nextn_predict_layers = 0;
    int max_position_embeddings = 0;  // tokens
    double rms_norm_eps = 1e-6;

    int num_attention_heads = 0;
    int q_lora_rank = 0;  // 0 (null in the file): q_proj instead of q_a and q_b
    int kv_lora_rank = 0;
    int qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;

    int n_routed_experts = 0;
    int num_experts_per_tok = 0;
    int n_shared_experts = 0;
    int n_group = 1, topk_group = 1;
    ScoringFunc scoring_func = ScoringFunc::kSigmoid;
    TopkMethod topk_method = TopkMethod::kNoauxTc;
    bool norm_topk_prob = true;
    double routed_scaling_factor = 1;

    double rope_theta = 10000;
    std::optional<YarnScaling> rope_scaling;
    std::optional<Fp8Quantization> quantization_config;
    bool tie_word_embeddings = false;

    std::optional<int> bos_token_id, pad_token_id;
    std::vector<int> eos_token_ids;  // union of both files, ascending
    GenerationDefaults generation;

    int qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
    int latent_dim() const { return kv_lora_rank + qk_rope_head_dim; }  // values a token and layer
    // Layer num_hidden_layers and above are the MTP layers.
    bool is_moe(int layer) const {
        return layer >= first_k_dense_replace && layer % moe_layer_freq == 0;
    }
    int num_moe_layers() const;  // without MTP layers
    // The softmax scale of attention: qk_head_dim^-0.5, times yarn's m² where there is yarn.
    double softmax_scale() const;
};

// Reads <folder>/config.json and, where it exists, generation_config.json. Every problem is one
// entry of `errors`, beginning with the file's path; the result is usable only if none was added.
ModelConfig read_model_config(const std::string& folder, std::vector<std::string>& errors);

}  // namespace aerie
