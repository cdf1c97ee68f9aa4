#include <algorithm>

#include "config/checks.h"

namespace aerie {

void check_memory(const Config& config, const ModelConfig&, const MemoryPlan& plan,
                  Diagnostics& diagnostics) {
    const int page = config.settings.page_size;
    const int64_t longest = plan.max_total_num_tokens - page;
    if (config.settings.context_length.value_or(0) > longest) {
        diagnostics.warnings.push_back(
            fmt::format("a request longer than {} tokens can never run: the KV pool of a replica "
                        "holds {} tokens ({}) and context_length is {}",
                        std::max<int64_t>(longest, 0), plan.max_total_num_tokens, plan.reason,
                        *config.settings.context_length));
    }
    for (const CardMemory& card : plan.cards) {
        if (card.used() <= plan.card_memory) continue;
        diagnostics.errors.push_back(
            fmt::format("not enough memory: {} card {} has {}, but attention weights take {}, "
                        "expert weights {}, "
                        "KV {} and activations {}",
                        config.node_name(card.node), card.card, format_bytes(plan.card_memory),
                        format_bytes(card.attention_weights), format_bytes(card.expert_weights),
                        format_bytes(card.kv), format_bytes(card.activations)));
    }
}

}  // namespace aerie
