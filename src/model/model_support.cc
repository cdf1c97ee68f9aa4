#include "model/model_support.h"

#include "kernels/gate.h"

namespace aerie::model {

Status check_supported(const ModelConfig& config) {
    const auto wrong = [](const char* field, int found, const std::string& expected) {
        return error("config.json: {}: found {}, expected {}", field, found, expected);
    };
    if (config.quantization_config) {
        if (config.quantization_config->block_n != 128)
            return wrong("weight_block_size[0]", config.quantization_config->block_n, "128");
        if (config.quantization_config->block_k != 128)
            return wrong("weight_block_size[1]", config.quantization_config->block_k, "128");
    }
    if (config.kv_lora_rank % 32 != 0 || config.kv_lora_rank > 1024)
        return wrong("kv_lora_rank", config.kv_lora_rank, "a multiple of 32, at most 1024");
    if (config.qk_rope_head_dim % 32 != 0 || config.qk_rope_head_dim > 256)
        return wrong("qk_rope_head_dim", config.qk_rope_head_dim, "a multiple of 32, at most 256");
    if (config.n_routed_experts > kernels::kMaxExperts)
        return wrong("n_routed_experts", config.n_routed_experts,
                     fmt::format("at most {}", kernels::kMaxExperts));
    if (config.n_group > kernels::kMaxExpertGroups)
        return wrong("n_group", config.n_group, fmt::format("at most {}", kernels::kMaxExpertGroups));
    return {};
}

bool layer_is_moe(const ModelConfig& config, int layer) {
    if (layer >= config.num_hidden_layers) return config.n_routed_experts > 0;
    return config.n_routed_experts > 0 && config.is_moe(layer);
}

kernels::RopeParams rope_params(const ModelConfig& config) {
    kernels::RopeParams params;
    params.dim = config.qk_rope_head_dim;
    params.theta = config.rope_theta;
    if (config.rope_scaling) {
        const YarnScaling& yarn = *config.rope_scaling;
        params.yarn = true;
        params.factor = yarn.factor;
        params.original_max_position = yarn.original_max_position_embeddings;
        params.beta_fast = yarn.beta_fast;
        params.beta_slow = yarn.beta_slow;
        params.mscale = yarn.mscale;
        params.mscale_all_dim = yarn.mscale_all_dim;
    }
    return params;
}

Result<kernels::ExpertWeights> load_ffn(WeightStore& store, const std::string& prefix, int64_t hidden,
                                        int64_t inner) {
    const WeightSlice gate_up[] = {{.module = prefix + "gate_proj", .rows = inner, .cols = hidden},
                                   {.module = prefix + "up_proj", .rows = inner, .cols = hidden}};
    const WeightSlice down[] = {{.module = prefix + "down_proj", .rows = hidden, .cols = inner}};
    auto first = store.pack(gate_up);
    if (!first) return first.error();
    auto second = store.pack(down);
    if (!second) return second.error();
    return kernels::ExpertWeights{*std::move(first), *std::move(second)};
}

}  // namespace aerie::model
