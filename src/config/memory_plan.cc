#include "config/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace aerie {
namespace {

// Requests of one replica, where max_running_requests is not given. A CPU step slows down with
// every further request long before it runs out of KV.
constexpr int kRunningRequestsCpu = 64;
constexpr int kRunningRequestsGpu = 256;
// On a CPU a pool is not made larger than this many longest sequences: memory that the machine has
// left serves others better.
constexpr int64_t kLongestSequencesCpu = 8;

// Sizes in bytes, from config.json alone. Arithmetic: model.md, section 5.
class Sizes {
  public:
    Sizes(const Config& config, const ModelConfig& model) : config_(config), m_(model) {}

    int64_t compute_bytes() const { return config_.model.dtype == ComputeDtype::kFloat32 ? 4 : 2; }
    // Layers that are drafted with: the first MTP layer, however many the checkpoint has.
    int num_mtp() const {
        return config_.settings.enable_mtp ? std::min(m_.num_nextn_predict_layers, 1) : 0;
    }
    int decode_rows_each() const { return num_mtp() > 0 ? 1 + config_.settings.mtp_num_steps : 1; }

    // One [n, k] matrix: FP8 with a scale a block where the checkpoint is quantised.
    int64_t matrix(int64_t n, int64_t k) const {
        if (!m_.quantization_config) return n * k * compute_bytes();
        const auto& q = *m_.quantization_config;
        const auto blocks = [](int64_t size, int block) { return (size + block - 1) / block; };
        return n * k + 4 * blocks(n, q.block_n) * blocks(k, q.block_k);
    }
    // Weights that every attention rank needs whole.
    int64_t replicated() const {
        const int64_t h = m_.hidden_size;
        const int64_t projections = (m_.q_lora_rank ? matrix(m_.q_lora_rank, h) : 0) +
                                    matrix(m_.latent_dim(), h) + 2 * h * compute_bytes();
        const int64_t gate = m_.n_routed_experts * (h * compute_bytes() + 4);
        const int64_t shared =
            3 * matrix(int64_t{m_.n_shared_experts} * m_.moe_intermediate_size, h);
        const int64_t dense = 3 * matrix(m_.intermediate_size, h);
        const int64_t num_moe = m_.num_moe_layers() + num_mtp();
        const int64_t embedding = m_.vocab_size * h * compute_bytes();
        const int64_t mtp = num_mtp() * 2 * h * h * compute_bytes();
        return (m_.num_hidden_layers + num_mtp()) * projections + num_moe * (gate + shared) +
               (m_.num_hidden_layers - m_.num_moe_layers()) * dense + embedding + mtp;
    }
    // Weights that are split over tp.
    int64_t split(int tp) const {
        const int64_t heads = (m_.num_attention_heads + tp - 1) / tp, h = m_.hidden_size;
        const int64_t q = matrix(heads * m_.qk_head_dim(), m_.q_lora_rank ? m_.q_lora_rank : h);
        // kv_b is used head by head (absorbed), so it is kept in the compute type.
        const int64_t kv_b =
            heads * (m_.qk_nope_head_dim + m_.v_head_dim) * m_.kv_lora_rank * compute_bytes();
        // Without determinism a CPU also keeps W_UK as it makes keys, beside its transpose.
        const bool expands = config_.device == DeviceChoice::kCpu &&
                             config_.settings.enable_deterministic_inference == false;
        const int64_t k_dim = expands ? m_.qk_nope_head_dim : 0;
        const int64_t k = heads * k_dim * m_.kv_lora_rank * compute_bytes();
        const int64_t o = matrix(h, heads * m_.v_head_dim);
        const int64_t head = (m_.vocab_size + tp - 1) / tp * h * compute_bytes();
        return (m_.num_hidden_layers + num_mtp()) * (q + kv_b + k + o) + head;
    }
    int64_t experts(int ep_rank, int ep) const {
        const auto [begin, end] = experts_of(ep_rank, ep, m_.n_routed_experts);
        const int64_t one = 2 * matrix(m_.moe_intermediate_size, m_.hidden_size) +
                            matrix(m_.hidden_size, m_.moe_intermediate_size);
        return (m_.num_moe_layers() + num_mtp()) * (end - begin) * one;
    }
    // Tokens of the largest step of one replica.
    int64_t step_tokens() const {
        const int chunk = config_.settings.chunked_prefill_size;
        return chunk > 0 ? chunk : config_.settings.context_length.value_or(0);
    }
    int64_t mailbox_rows(int tp, int cp) const { return (step_tokens() + tp * cp - 1) / (tp * cp); }
    int num_slots() const { return config_.ae_separation.microbatches.value_or(3); }

    // Gathered hidden states (compute type and fp32 sums), absorbed queries and attention outputs,
    // the dense MLP on this rank's share, logits, one combine slot a microbatch and expert rank, and
    // with MTP the hidden states of all rows.
    int64_t attention_activations(int tp, int cp, int ep, int num_running) const {
        const int64_t tokens = step_tokens(), c = compute_bytes(), h = m_.hidden_size;
        const int64_t heads = (m_.num_attention_heads + tp - 1) / tp;
        const int64_t own = mailbox_rows(tp, cp);
        return tokens * h * (2 * c + 4) +
               tokens / cp * heads * (m_.latent_dim() + m_.kv_lora_rank) * c +
               own * 2 * m_.intermediate_size * c +
               (int64_t{num_running} * decode_rows_each() + std::max(kPromptLogprobRows, config_.settings.page_size)) *
                   (m_.vocab_size + tp - 1) / tp * 4 +
               num_mtp() * tokens * h * c +
               num_slots() * std::min<int64_t>(ep, m_.num_experts_per_tok) * own * h * c;
    }
    // One group's rows through the experts, and one dispatch slot a microbatch and attention rank.
    int64_t expert_activations(int64_t mailbox_rows_all) const {
        const int64_t c = compute_bytes(), h = m_.hidden_size;
        const int64_t rows =
            int64_t{config_.ae_separation.expert_rows_max} * m_.num_experts_per_tok;
        return rows * (2 * m_.moe_intermediate_size + h) * c +
               num_slots() * mailbox_rows_all * h * c;
    }

  private:
    const Config& config_;
    const ModelConfig& m_;
};

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
        plan_.cards.push_back({.node = place.node, .card = place.card});
        return plan_.cards.back();
    }

    void add_weights() {
        int64_t mailbox_rows_all = 0;
        for (const auto& replica : placement_.replicas) {
            const int tp = replica.tp_size, cp = replica.cp_size;
            mailbox_rows_all += sizes_.mailbox_rows(tp, cp) * tp * cp;
            // On a CPU the ranks of a process share what is replicated.
            const int64_t sharing =
                cpu() ? std::ssize(placement_.nodes[replica.node].attention_ranks) : 1;
            for (int rank : replica.ranks) {
                CardMemory& at = card(placement_.attention[rank]);
                at.attention_weights += sizes_.split(tp) + sizes_.replicated() / sharing;
                at.activations += sizes_.attention_activations(
                    tp, cp, placement_.expert_ep(), num_running(config_, placement_, replica));
            }
        }
        for (const RankPlace& place : placement_.experts) {
            CardMemory& at = card(place);
            at.expert_weights += sizes_.experts(place.ep, placement_.expert_ep());
            at.activations += sizes_.expert_activations(mailbox_rows_all);
        }
        std::sort(plan_.cards.begin(), plan_.cards.end(), [](const auto& a, const auto& b) {
            return std::pair(a.node, a.card) < std::pair(b.node, b.card);
        });
    }

    int64_t within_fraction() const {
        return static_cast<int64_t>(static_cast<double>(plan_.card_memory) *
                                    config_.settings.mem_fraction_static);
    }
    // On a CPU, where cards are shares of one memory, a derived pool also leaves room for the
    // activations; on a GPU mem_fraction_static is taken at its word.
    bool activations_limit(const CardMemory& at) const {
        return cpu() && plan_.card_memory - at.activations < within_fraction();
    }
    // Bytes that KV may take on a card.
    int64_t budget(const CardMemory& at) const {
        const int64_t room =
            activations_limit(at) ? plan_.card_memory - at.activations : within_fraction();
        return std::max<int64_t>(0, room - at.attention_weights - at.expert_weights - at.host_kv);
    }

    // How many tokens memory holds, with the numbers.
    std::string why_fit(const AttentionReplica& replica, const CardMemory& at, int64_t tokens) const {
        const std::string limit =
            activations_limit(at)
                ? fmt::format("activations {}", format_bytes(at.activations))
                : fmt::format("{} that mem_fraction_static {:g} leaves",
                              format_bytes(plan_.card_memory - within_fraction()),
                              config_.settings.mem_fraction_static);
        return fmt::format("memory holds {} tokens of {}: {} on each of {} cards, which have {} less "
                           "{} and weights {}{}",
                           tokens, format_bytes(per_token_), format_bytes(budget(at)),
                           replica.ranks.size(), format_bytes(plan_.card_memory), limit,
                           format_bytes(at.attention_weights + at.expert_weights),
                           at.host_kv == 0 ? std::string()
                                           : fmt::format(" and hicache_size_gb {:g}",
                                                         config_.settings.hicache_size_gb));
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
        const int64_t tokens_fit = (cpu() ? sum : budget(*fullest) * replica.cp_size) /
                                   std::max<int64_t>(1, per_token_);
        int64_t tokens = tokens_fit;
        std::string reason = why_fit(replica, *fullest, tokens_fit);
        const int64_t context = config_.settings.context_length.value_or(0);
        if (const auto cap = config_.settings.max_total_tokens; cap && *cap < tokens) {
            tokens = *cap;
            reason = fmt::format("max_total_tokens {}; {}", *cap, reason);
        } else if (cpu() && kLongestSequencesCpu * context < tokens && !cap) {
            tokens = kLongestSequencesCpu * context;
            reason = fmt::format("{} × context_length {} on a CPU where max_total_tokens is not "
                                 "given; {}", kLongestSequencesCpu, context, reason);
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
