#include "config/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "config/memory_sizes.h"

namespace aerie {
namespace {

// Requests of one replica, where max_running_requests is not given. A CPU step slows down with
// every further request long before it runs out of KV.
constexpr int kRunningRequestsCpu = 64;
constexpr int kRunningRequestsGpu = 256;
// On a CPU a pool is not made larger than this many longest sequences: memory that the machine has
// left serves others better.
constexpr int64_t kLongestSequencesCpu = 8;

int num_running(const Config& config, const Placement& placement, const AttentionReplica& replica) {
    int num_of_role = 0;
    for (const auto& other : placement.replicas) num_of_role += other.role == replica.role;
    if (const auto& given = config.settings.max_running_requests) {
        return std::max(1, *given / std::max(1, num_of_role));
    }
    return config.device == DeviceChoice::kCuda ? kRunningRequestsGpu : kRunningRequestsCpu;
}

class Planner {
  public:
    Planner(const Config& config, const ModelConfig& model, const Placement& placement,
            int64_t card_memory)
        : config_(config),
          model_(model),
          placement_(placement),
          sizes_(config, model),
          per_token_(kv_bytes_per_token(config, model)) {
        plan_.card_memory = card_memory;
    }

    MemoryPlan run() {
        add_weights();
        for (const auto& replica : placement_.replicas) size_replica(replica);
        plan_.max_total_num_tokens = plan_.replicas.empty() ? 0 : INT64_MAX;
        for (const auto& sizing : plan_.replicas) {
            if (sizing.max_total_num_tokens >= plan_.max_total_num_tokens) continue;
            plan_.max_total_num_tokens = sizing.max_total_num_tokens;
            plan_.reason = sizing.reason;
        }
        return std::move(plan_);
    }

  private:
    bool cpu() const { return config_.device != DeviceChoice::kCuda; }

    CardMemory& card(const RankPlace& place) {
        for (CardMemory& card : plan_.cards) {
            if (card.node == place.node && card.card == place.card) return card;
        }
        plan_.cards.push_back(
            {.node = place.node, .card = place.card, .runtime = cpu() ? 0 : kCardContextBytes});
        return plan_.cards.back();
    }

    void add_weights() {
        int64_t mailbox_rows_all = 0, dispatch_rows = 0;
        for (const auto& replica : placement_.replicas) {
            const int tp = replica.tp_size, cp = replica.cp_size;
            mailbox_rows_all += sizes_.mailbox_rows(tp, cp) * tp * cp;
            const int running = num_running(config_, placement_, replica);
            dispatch_rows = std::max<int64_t>(
                dispatch_rows, step_rows_max(config_, replica.role, running) / (tp * cp));
            // On a CPU the ranks of a process share what is replicated.
            const int64_t sharing =
                cpu() ? std::ssize(placement_.nodes[replica.node].attention_ranks) : 1;
            for (int rank : replica.ranks) {
                CardMemory& at = card(placement_.attention[rank]);
                at.attention_weights += sizes_.split(tp) + sizes_.replicated() / sharing;
                at.activations += attention_activations(replica);
            }
        }
        for (const RankPlace& place : placement_.experts) {
            CardMemory& at = card(place);
            at.expert_weights += sizes_.experts(place.ep, placement_.expert_ep());
            const auto [begin, end] =
                experts_of(place.ep, placement_.expert_ep(), model_.n_routed_experts);
            if (cpu() || placement_.experts_serve_others())
                at.activations += sizes_.expert_activations(mailbox_rows_all, dispatch_rows, end - begin);
        }
        std::sort(plan_.cards.begin(), plan_.cards.end(), [](const auto& a, const auto& b) {
            return std::pair(a.node, a.card) < std::pair(b.node, b.card);
        });
    }

    int64_t attention_activations(const AttentionReplica& replica) const {
        const int running = num_running(config_, placement_, replica);
        const int tp = replica.tp_size, cp = replica.cp_size, ep = placement_.expert_ep();
        if (cpu()) return sizes_.attention_activations(tp, cp, ep, running);
        const bool has_experts = placement_.has_all_experts(replica);
        const CardStep step =
            sizes_.card_step(replica, running, has_experts ? model_.n_routed_experts : 0);
        // Else what they make of rows elsewhere comes back as fp32 (exchange/staged_side.cc).
        const int64_t staged =
            has_experts ? 0 : sizes_.held(step.rows / (tp * cp) * model_.hidden_size * 4);
        return card_step_bytes(model_, step) + staged;
    }

    int64_t within_fraction() const {
        return static_cast<int64_t>(static_cast<double>(plan_.card_memory) *
                                    config_.settings.mem_fraction_static);
    }
    // A pool takes what mem_fraction_static says, and leaves room for all else.
    bool activations_limit(const CardMemory& at) const {
        return plan_.card_memory - at.activations - at.runtime < within_fraction();
    }
    // Bytes that KV may take on a card.
    int64_t budget(const CardMemory& at) const {
        const int64_t room = activations_limit(at) ? plan_.card_memory - at.activations - at.runtime
                                                   : within_fraction();
        return std::max<int64_t>(0, room - at.attention_weights - at.expert_weights - at.host_kv);
    }

    // How many tokens memory holds, with the numbers.
    std::string why_fit(const AttentionReplica& replica, const CardMemory& at,
                        int64_t tokens) const {
        const std::string limit =
            activations_limit(at)
                ? fmt::format("activations {}{}", format_bytes(at.activations),
                              cpu() ? "" : " and CUDA's " + format_bytes(at.runtime))
                : fmt::format("{} that mem_fraction_static {:g} leaves",
                              format_bytes(plan_.card_memory - within_fraction()),
                              config_.settings.mem_fraction_static);
        return fmt::format(
            "memory holds {} tokens of {}: {} on each of {} cards, which have {} less "
            "{} and weights {}{}",
            tokens, format_bytes(per_token_), format_bytes(budget(at)), replica.ranks.size(),
            format_bytes(plan_.card_memory), limit,
            format_bytes(at.attention_weights + at.expert_weights),
            at.host_kv == 0
                ? std::string()
                : fmt::format(" and hicache_size_gb {:g}", config_.settings.hicache_size_gb));
    }

    // Pages that a tier of the prefix cache holds on each cp rank.
    int pages_of(double gb, const AttentionReplica& replica) const {
        const int64_t block_bytes = per_token_ * config_.settings.page_size;
        if (config_.settings.disable_radix_cache || block_bytes == 0) return 0;
        // Two such tiers and the blocks are numbered together.
        const double num_blocks =
            std::min(gb * 1e9 / static_cast<double>(block_bytes), INT32_MAX / 4.0);
        return static_cast<int>(num_blocks) / replica.cp_size;
    }

    // The tiers below the blocks, over all cp ranks. On a CPU host memory is the cards'.
    void size_lower_tiers(const AttentionReplica& replica, KvSizing& sizing) {
        const Settings& settings = config_.settings;
        const int num_host = pages_of(settings.hicache_size_gb, replica);
        if (cpu()) {
            for (int rank : replica.ranks)
                card(placement_.attention[rank]).host_kv +=
                    num_host * per_token_ * settings.page_size / replica.tp_size;
        }
        sizing.num_host_blocks = num_host * replica.cp_size;
        if (!settings.hicache_path.empty())
            sizing.num_file_blocks =
                pages_of(settings.hicache_file_size_gb, replica) * replica.cp_size;
    }

    void size_replica(const AttentionReplica& replica) {
        KvSizing sizing;
        size_lower_tiers(replica, sizing);
        const CardMemory* fullest = nullptr;
        int64_t sum = 0;
        for (int rank : replica.ranks) {
            const CardMemory& at = card(placement_.attention[rank]);
            if (fullest == nullptr || budget(at) < budget(*fullest)) fullest = &at;
            sum += budget(at);
        }
        // Blocks are split over cp and replicated over tp, on a CPU shared by the tp ranks.
        const int64_t tokens_fit =
            (cpu() ? sum : budget(*fullest) * replica.cp_size) / std::max<int64_t>(1, per_token_);
        int64_t tokens = tokens_fit;
        std::string reason = why_fit(replica, *fullest, tokens_fit);
        const int64_t context = config_.settings.context_length.value_or(0);
        if (const auto cap = config_.settings.max_total_tokens; cap && *cap < tokens) {
            tokens = *cap;
            reason = fmt::format("max_total_tokens {}; {}", *cap, reason);
        } else if (cpu() && kLongestSequencesCpu * context < tokens && !cap) {
            tokens = kLongestSequencesCpu * context;
            reason = fmt::format(
                "{} × context_length {} on a CPU where max_total_tokens is not "
                "given; {}",
                kLongestSequencesCpu, context, reason);
        }
        const int page = config_.settings.page_size;
        sizing.num_blocks = static_cast<int>(std::min<int64_t>(tokens / page, INT32_MAX / 4));
        sizing.max_total_num_tokens = int64_t{sizing.num_blocks} * page;
        sizing.max_running_requests =
            std::max(1, std::min(num_running(config_, placement_, replica), sizing.num_blocks));
        sizing.reason = std::move(reason);
        const int64_t pool = sizing.max_total_num_tokens * per_token_;
        plan_.replicas.push_back(std::move(sizing));
        for (int rank : replica.ranks) {
            card(placement_.attention[rank]).kv +=
                pool / (cpu() ? replica.tp_size * replica.cp_size : replica.cp_size);
        }
    }

    const Config& config_;
    const ModelConfig& model_;
    const Placement& placement_;
    Sizes sizes_;
    int64_t per_token_;
    MemoryPlan plan_;
};

}  // namespace

int64_t kv_bytes_per_token(const Config& config, const ModelConfig& model) {
    const Sizes sizes(config, model);
    return int64_t{model.num_hidden_layers + sizes.num_mtp()} * model.latent_dim() *
           sizes.compute_bytes();
}

MemoryPlan plan_memory(const Config& config, const ModelConfig& model, const Placement& placement,
                       int64_t card_memory) {
    return Planner(config, model, placement, card_memory).run();
}

std::string format_bytes(int64_t bytes) {
    const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    int unit = 0;
    for (; std::fabs(value) >= 1024 && unit < 4; ++unit) value /= 1024;
    return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

int64_t parse_bytes(const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    std::string unit(end);
    for (const char* suffix : {"iB", "B"}) {
        if (unit.ends_with(suffix)) unit.resize(unit.size() - std::string_view(suffix).size());
    }
    const std::string_view letters = "KMGT";
    double factor = 1;
    if (!unit.empty()) {
        const size_t power = unit.size() == 1 ? letters.find(unit[0]) : letters.npos;
        if (power == letters.npos) return 0;
        factor = std::pow(1024.0, static_cast<double>(power + 1));
    }
    const double bytes = value * factor;
    return bytes >= 1 && bytes < 9e18 ? static_cast<int64_t>(bytes) : 0;
}

}  // namespace aerie
