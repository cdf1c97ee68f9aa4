#include "app/card_support.h"

namespace aerie {

Status check_card_support(const LoadedConfig& loaded) {
    const Config& config = loaded.config;
    if (config.device != DeviceChoice::kCuda) return {};
    const auto refuse = [](const char* field, const auto& found, const auto& expected) {
        return error("--device cuda: {}: found {}, expected {}; --device cpu serves it", field,
                     found, expected);
    };
    if (config.separated())
        return refuse("ae_separation.enabled", "true",
                      "false: attention and experts share the card");
    if (loaded.placement.attention.size() != 1 || loaded.placement.experts.size() != 1)
        return refuse("the number of cards", loaded.placement.attention.size(), "1");
    if (config.model.dtype == ComputeDtype::kFloat32) return refuse("dtype", "float32", "bfloat16");
    if (config.settings.enable_mtp) return refuse("enable_mtp", "true", "false");
    if (!config.settings.hicache_path.empty())
        return refuse("hicache_path", config.settings.hicache_path, "none (hicache_size_gb works)");
    const ModelConfig& model = loaded.model;
    if (model.kv_lora_rank != 512) return refuse("kv_lora_rank", model.kv_lora_rank, "512");
    if (128 % model.num_attention_heads != 0)
        return refuse("num_attention_heads", model.num_attention_heads, "a divisor of 128");
    if (model.qk_rope_head_dim != 64)
        return refuse("qk_rope_head_dim", model.qk_rope_head_dim, "64");
    return {};
}

}  // namespace aerie
