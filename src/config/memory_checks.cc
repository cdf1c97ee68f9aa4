#include <algorithm>
#include <cmath>

#include "config/checks.h"

namespace aerie {
namespace {

bool fits(const Config& config, const MemoryPlan& plan) {
    return plan.max_total_num_tokens >= 2 * int64_t{config.settings.page_size} &&
           std::all_of(plan.cards.begin(), plan.cards.end(),
                       [&](const CardMemory& card) { return card.used() <= plan.card_memory; });
}

// Looks for one change of the configuration with which everything fits, of each kind.
class Remedies {
  public:
    Remedies(const Config& config, const ModelConfig& model, int64_t card_memory)
        : config_(config), model_(model), card_memory_(card_memory) {}

    std::string run() {
        try_fraction();
        try_total_tokens();
        try_chunk();
        if (config_.device == DeviceChoice::kCuda) {  // more CPU ranks share the same memory
            try_expert_ep();
            try_attention_tp();
        }
        return found_.empty() ? "no single setting makes it fit: larger cards, more nodes, or a "
                                "smaller model would"
                              : "would fit: " + found_;
    }

  private:
    bool works(const Config& changed) const {
        return fits(changed, plan_memory(changed, model_, place(changed), card_memory_));
    }
    void add(const std::string& text) { found_ += (found_.empty() ? "" : ", or ") + text; }

    void try_fraction() {
        for (int percent = 99; percent >= 1; --percent) {
            Config changed = config_;
            changed.settings.mem_fraction_static = percent / 100.0;
            if (works(changed)) return add(fmt::format("mem_fraction_static = 0.{:02}", percent));
        }
    }
    void try_total_tokens() {
        const int64_t page = config_.settings.page_size;
        for (int64_t pages = 1 << 24; pages >= 2; pages /= 2) {
            Config changed = config_;
            changed.settings.max_total_tokens = pages * page;
            if (works(changed)) return add(fmt::format("max_total_tokens = {}", pages * page));
        }
    }
    void try_chunk() {
        const int page = config_.settings.page_size;
        const int now = config_.settings.chunked_prefill_size;
        for (int pages = 1 << 14; pages >= 1; pages /= 2) {
            if (now > 0 && pages * page >= now) continue;
            Config changed = config_;
            changed.settings.chunked_prefill_size = pages * page;
            if (works(changed)) return add(fmt::format("chunked_prefill_size = {}", pages * page));
        }
    }
    // With fewer copies on the same cards, else on more nodes.
    void try_expert_ep() {
        const Parallel& p = config_.parallel;
        for (int factor = 2; p.expert_ep * factor <= model_.n_routed_experts; factor *= 2) {
            Config changed = config_;
            changed.parallel.expert_ep = changed.settings.ep_size = p.expert_ep * factor;
            const bool fewer_copies = p.expert_dp % factor == 0;
            std::string text = fmt::format("ep_size = {0} in settings.json with expert_ep = {0}",
                                           p.expert_ep * factor);
            if (config_.separated() && fewer_copies) {
                changed.parallel.expert_dp = p.expert_dp / factor;
                text += fmt::format(" and expert_dp = {} in config.toml", p.expert_dp / factor);
            } else if (config_.separated()) {
                text += add_expert_nodes(changed, factor);
            } else {
                if (config_.cluster.nodes * config_.cluster.gpus_per_node %
                    (p.expert_ep * factor)) {
                    continue;
                }
                text += " in config.toml";
            }
            if (works(changed)) return add(text);
        }
    }
    static std::string add_expert_nodes(Config& changed, int factor) {
        auto& nodes = changed.ae_separation.decode_nodes;
        const size_t more = nodes.size() * (factor - 1);
        for (size_t i = 0; i < more; ++i)
            nodes.push_back(changed.node_name(changed.cluster.nodes++));
        return fmt::format(", nodes = {} and {} names in decode_nodes in config.toml",
                           changed.cluster.nodes, nodes.size());
    }
    // On the same cards: more cards a replica, fewer replicas.
    void try_attention_tp() {
        const Parallel& p = config_.parallel;
        for (int factor = 2; p.attention_tp * factor <= model_.num_attention_heads; factor *= 2) {
            const int tp = p.attention_tp * factor;
            if (model_.num_attention_heads % tp != 0 || p.global_dp % factor != 0 ||
                config_.cluster.gpus_per_node % (tp * p.attention_cp) != 0) {
                continue;
            }
            Config changed = config_;
            changed.parallel.attention_tp = changed.settings.tp_size = tp;
            changed.parallel.global_dp = changed.settings.dp_size = p.global_dp / factor;
            if (*changed.ae_separation.decode_tp == p.attention_tp) {
                changed.ae_separation.decode_tp = tp;
            }
            if (works(changed)) {
                return add(
                    fmt::format("tp_size = {0} and dp_size = {1} in settings.json with "
                                "attention_tp = {0} and global_dp = {1} in config.toml",
                                tp, p.global_dp / factor));
            }
        }
    }

    const Config& config_;
    const ModelConfig& model_;
    const int64_t card_memory_;
    std::string found_;
};

const CardMemory& fullest(const MemoryPlan& plan) {
    return *std::max_element(plan.cards.begin(), plan.cards.end(),
                             [](const auto& a, const auto& b) { return a.used() < b.used(); });
}

}  // namespace

void check_memory(const Config& config, const ModelConfig& model, const MemoryPlan& plan,
                  Diagnostics& diagnostics) {
    if (plan.cards.empty()) return;
    const int page = config.settings.page_size;
    if (!fits(config, plan)) {
        const CardMemory& card = fullest(plan);
        diagnostics.errors.push_back(fmt::format(
            "not enough memory: {} card {} has {}; attention weights {} + expert weights {} + KV "
            "{} + evicted KV in host memory {} + activations {} + CUDA's {} = {}, and KV for {} "
            "tokens of at "
            "least {} within mem_fraction_static = {:g}; {}",
            config.node_name(card.node), card.card, format_bytes(plan.card_memory),
            format_bytes(card.attention_weights), format_bytes(card.expert_weights),
            format_bytes(card.kv), format_bytes(card.host_kv), format_bytes(card.activations),
            format_bytes(card.runtime), format_bytes(card.used()), plan.max_total_num_tokens,
            2 * page, config.settings.mem_fraction_static,
            Remedies(config, model, plan.card_memory).run()));
        return;
    }
    const int64_t longest = plan.max_total_num_tokens - page;
    if (const int context = config.settings.context_length.value_or(0); context > longest) {
        diagnostics.warnings.push_back(
            fmt::format("a request longer than {} tokens can never run: the KV pool of a replica "
                        "holds {} tokens ({}) and context_length is {}; expected a larger pool or "
                        "context_length = {}",
                        longest, plan.max_total_num_tokens, plan.reason, context, longest));
    }
}

}  // namespace aerie
