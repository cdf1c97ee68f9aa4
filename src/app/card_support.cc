#include "app/card_support.h"

#include <algorithm>
#include <utility>

namespace aerie {
namespace {

template <typename Found>
Error refuse(const char* field, const Found& found, const std::string& expected) {
    return error("a GPU does not serve this yet: {}: found {}, expected {}; --device cpu serves it",
                 field, found, expected);
}

// What the kernels compute (kernels/cuda): products of whole 16-byte pieces, FlashInfer's heads.
Status check_model(const ModelConfig& m) {
    if (m.kv_lora_rank != 512) return refuse("kv_lora_rank", m.kv_lora_rank, "512");
    if (m.qk_rope_head_dim != 64) return refuse("qk_rope_head_dim", m.qk_rope_head_dim, "64");
    if (128 % m.num_attention_heads != 0)
        return refuse("num_attention_heads", m.num_attention_heads, "a divisor of 128");
    if (m.hidden_size % 128 != 0) return refuse("hidden_size", m.hidden_size, "a multiple of 128");
    const std::pair<const char*, int> sizes[] = {
        {"q_lora_rank", m.q_lora_rank},
        {"qk_nope_head_dim", m.qk_nope_head_dim},
        {"v_head_dim", m.v_head_dim},
        {"intermediate_size", m.intermediate_size},
        {"moe_intermediate_size", m.moe_intermediate_size}};
    for (const auto& [field, size] : sizes) {
        if (size % 16 != 0) return refuse(field, size, "a multiple of 16");
    }
    return {};
}

// Attention counts the values of a step's queries in 31 bits.
Status check_steps(const LoadedConfig& loaded) {
    const ModelConfig& m = loaded.model;
    const int64_t most =
        ((int64_t{1} << 31) - 1) / (int64_t{m.num_attention_heads} * m.latent_dim());
    for (const AttentionReplica& replica : loaded.placement.replicas) {
        const int running = loaded.memory.replicas[replica.replica].max_running_requests;
        const int rows = step_rows_max(loaded.config, replica.role, running);
        if (rows > most)
            return refuse("chunked_prefill_size with max_running_requests",
                          fmt::format("steps of {} rows", rows),
                          fmt::format("at most {} with these heads", most));
    }
    return {};
}

// A host has one card, and hosts reach each other's through messages, but for KV, which is copied from
// card to card.
Status check_places(const LoadedConfig& loaded) {
    const Config& config = loaded.config;
    if (config.cluster.gpus_per_node != 1)
        return refuse("cluster.gpus_per_node", config.cluster.gpus_per_node, "1: a host has one card");
    const size_t here = nodes_here(config).size();
    if (here > 1 && !config.share_cards)
        return refuse("cluster.nodes", fmt::format("{} on this machine", here),
                      "1, or --share-cards: hosts use the machine's first GPU");
    if (config.share_cards && config.node_rank)
        return refuse("--share-cards", "with a node rank",
                      "one launcher for all hosts of a machine, which divides the GPU");
    if (const int slots = config.ae_separation.microbatches.value_or(1); slots != 1)
        return refuse("ae_separation.microbatches", slots, "1: one GPU computes them in turn");
    for (const AttentionReplica& replica : loaded.placement.replicas) {
        if (replica.ranks.size() != 1)
            return refuse("attention_tp × attention_cp", replica.ranks.size(), "1");
        const bool elsewhere = config.node_rank || std::ssize(nodes_here(config)) != config.cluster.nodes;
        if (replica.role != Role::kUnified && elsewhere)
            return refuse("cluster.nodes", "some on other machines",
                          "all on this one: KV moves within a machine's cards alone");
    }
    return {};
}

}  // namespace

Status check_card_support(const LoadedConfig& loaded) {
    const Config& config = loaded.config;
    if (config.device != DeviceChoice::kCuda) return {};
    RETURN_IF_ERROR(check_places(loaded));
    if (config.model.dtype == ComputeDtype::kFloat32) return refuse("dtype", "float32", "bfloat16");
    const Settings& settings = config.settings;
    if (settings.enable_mtp) return refuse("enable_mtp", "true", "false");
    if (settings.hicache_size_gb > 0)
        return refuse("hicache_size_gb", settings.hicache_size_gb, "0");
    if (!settings.hicache_path.empty())
        return refuse("hicache_path", settings.hicache_path, "none");
    RETURN_IF_ERROR(check_model(loaded.model));
    return check_steps(loaded);
}

}  // namespace aerie
