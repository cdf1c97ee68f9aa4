// What the configuration means for each part of a host.
#include <algorithm>
#include <limits>

#include "app/rank_host.h"
#include "comm/port_numbers.h"
#include "config/card_memory.h"
#include "kernels/sampling.h"
#include "model/step_layout.h"
#include "model/step_numbers.h"

namespace aerie {
namespace {

schedule::Policy policy_of(SchedulePolicy policy) {
    switch (policy) {
        case SchedulePolicy::kFcfs: break;
        case SchedulePolicy::kLpm: return schedule::Policy::kLpm;
        case SchedulePolicy::kDfsWeight: return schedule::Policy::kDfsWeight;
        case SchedulePolicy::kLof: return schedule::Policy::kLof;
        case SchedulePolicy::kRandom: return schedule::Policy::kRandom;
        case SchedulePolicy::kPriority: return schedule::Policy::kPriority;
    }
    return schedule::Policy::kFcfs;
}

}  // namespace

DType RankHost::compute() const {
    return config().model.dtype == ComputeDtype::kFloat32 ? DType::kF32 : DType::kBF16;
}

bool RankHost::deterministic() const {
    return config().settings.enable_deterministic_inference.value_or(true);
}

// On every role alike: a prompt's KV of the MTP layer is made and moved with the rest.
bool RankHost::with_mtp() const { return config().settings.enable_mtp; }

// Rows of a step that attention computes at once; bounds the memory of its results. Without
// determinism they also share the expansion of the context.
int64_t RankHost::tile_rows() const {
    if (device() == Device::kCuda) return std::numeric_limits<int32_t>::max();  // a step is one
    return deterministic() ? 256 : 1024;
}

int RankHost::max_running(const AttentionReplica& replica) const {
    return options_.loaded->memory.replicas[replica.replica].max_running_requests;
}

// On a CPU rows that no step asks for cost no memory; on the card each has its place.
int RankHost::logits_rows_max(const AttentionReplica& replica) const {
    return device() == Device::kCpu
               ? step_rows_max(replica)
               : aerie::logits_rows_max(config(), replica.role, max_running(replica));
}

int RankHost::step_rows_max(const AttentionReplica& replica) const {
    return aerie::step_rows_max(config(), replica.role, max_running(replica));
}

// Rows of the largest dispatch: a rank's share of a step in one microbatch.
int RankHost::dispatch_rows_max(const AttentionReplica& replica) const {
    return static_cast<int>(model::max_own_rows(step_rows_max(replica), tile_rows(),
                                                static_cast<int>(replica.ranks.size())));
}

// Of the replica that holds the least: a request fits wherever it is sent, and comes back from a
// retraction.
int64_t RankHost::max_request_tokens() const {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const AttentionReplica& replica : placement().replicas) {
        const cache::KvBlocksOptions kv = kv_blocks_options(replica);
        least = std::min(least, (int64_t{kv.num_blocks} * kv.cp - 1) * kv.page_size);
    }
    return least;
}

cache::KvBlocksOptions RankHost::kv_blocks_options(const AttentionReplica& replica) const {
    const KvSizing& sizing = options_.loaded->memory.replicas[replica.replica];
    return {.num_blocks = (sizing.num_blocks + replica.cp_size - 1) / replica.cp_size,
            .page_size = config().settings.page_size,
            .cp = replica.cp_size,
            .lower = {.num_host_slots = sizing.num_host_blocks / replica.cp_size,
                      .num_file_slots = sizing.num_file_blocks / replica.cp_size}};
}

schedule::SchedulerOptions RankHost::scheduler_options(const AttentionReplica& replica) const {
    const KvSizing& sizing = options_.loaded->memory.replicas[replica.replica];
    schedule::SchedulerOptions options;
    options.flavour = replica.role == Role::kPrefill  ? schedule::Flavour::kPrefill
                      : replica.role == Role::kDecode ? schedule::Flavour::kDecode
                                                      : schedule::Flavour::kUnified;
    options.kv = kv_blocks_options(replica);
    options.max_running_requests = sizing.max_running_requests;
    options.chunked_prefill_size = config().settings.chunked_prefill_size;
    options.max_prefill_tokens = kMaxPrefillTokens;
    options.mixed_chunks = config().settings.enable_mixed_chunk;
    if (config().settings.enable_mtp && replica.role != Role::kPrefill)
        options.num_drafts = config().settings.mtp_num_steps;
    options.prefix_cache = !config().settings.disable_radix_cache;
    options.policy = {
        .policy = policy_of(config().settings.schedule_policy),
        .low_priority_values_first = config().settings.schedule_low_priority_values_first};
    options.max_request_tokens = max_request_tokens();
    options.prompt_logprob_rows = kPromptLogprobRows;
    options.schedule_conservativeness = config().settings.schedule_conservativeness;
    options.eos_ids.assign(model().eos_token_ids.begin(), model().eos_token_ids.end());
    return options;
}

exchange::AttentionSideOptions RankHost::attention_side_options(int attention_rank) const {
    const RankPlace& place = placement().attention[attention_rank];
    const AttentionReplica& replica = placement().replicas[place.group];
    exchange::AttentionSideOptions options;
    options.attention_rank = attention_rank;
    options.fabric = options_.fabric;
    options.compute = compute();
    options.hidden = model().hidden_size;
    options.topk = model().num_experts_per_tok;
    options.max_rows = dispatch_rows_max(replica);
    const int ep = placement().expert_ep();
    for (int r = 0; r < ep; ++r) {
        options.expert_begin.push_back(experts_of(r, ep, model().n_routed_experts).first);
    }
    options.expert_begin.push_back(model().n_routed_experts);
    for (const ExpertCopy& copy : placement().copies) {
        auto& destinations = options.copies.emplace_back();
        for (const int rank : copy.ranks) {
            destinations.push_back({placement().experts[rank].node, comm::expert_port(rank)});
        }
    }
    options.first_copy = replica.expert_copy;
    options.timeout_s = config().ae_separation.exchange_timeout_s;
    // Experts of the same process are computed by who waits for them.
    options.help = [this] {
        return std::any_of(experts_.begin(), experts_.end(),
                           [](const auto& expert) { return expert->help(); });
    };
    return options;
}

// A step has at most as many rows as requests run.
static_assert(kGraphRowsMax <= model::StepNumbers::kFewRows);
static_assert(kDrawBytes == sizeof(kernels::DrawParams));  // as the memory plan counts them
std::vector<int64_t> RankHost::graph_rows(const AttentionReplica& replica) const {
    return computes_experts(replica) ? graph_rows_of(max_running(replica))
                                    : std::vector<int64_t>();
}

std::optional<expert::CardExpertsOptions> RankHost::card_experts_options(
    const exchange::ExpertSideOptions& side) const {
    if (device() == Device::kCpu) return std::nullopt;
    const auto& layers = card_experts_.layers;
    const auto moe =
        std::find_if(layers.begin(), layers.end(), [](const auto* l) { return l != nullptr; });
    return expert::CardExpertsOptions{
        .num_experts = side.num_experts,
        .first_expert = card_experts_.expert_begin,
        .hidden = side.hidden,
        .topk = side.topk,
        .max_rows = std::max(side.max_rows, side.group_rows_max),
        .quantises_rows = !deterministic(),
        .largest = moe == layers.end() ? nullptr : &(*moe)->front()};
}

exchange::CardSideOptions RankHost::card_side_options(const AttentionReplica& replica,
                                                      Stream& stream) const {
    exchange::CardSideOptions options;
    options.stream = &stream;
    for (const auto* layer : card_experts_.layers)
        options.layers.push_back(layer == nullptr ? nullptr : &layer->front());
    options.num_experts = model().n_routed_experts;
    options.hidden = model().hidden_size;
    options.max_rows = dispatch_rows_max(replica);
    return options;
}

exchange::ExpertSideOptions RankHost::expert_side_options(const RankPlace& place) const {
    const auto [begin, end] = experts_of(place.ep, placement().expert_ep(), model().n_routed_experts);
    exchange::ExpertSideOptions options;
    options.expert_rank = place.rank;
    options.ep_rank = place.ep;
    options.num_experts = end - begin;
    options.fabric = options_.fabric;
    options.compute = compute();
    options.hidden = model().hidden_size;
    options.topk = model().num_experts_per_tok;
    for (const AttentionReplica& replica : placement().replicas) {
        options.max_rows = std::max(options.max_rows, dispatch_rows_max(replica));
    }
    for (const RankPlace& rank : placement().attention) {
        options.attention_ranks.push_back({rank.node, comm::attention_port(rank.rank)});
    }
    options.group_rows_max = config().ae_separation.expert_rows_max;
    options.prefill_wait_s = config().ae_separation.expert_prefill_wait_ms * 1e-3;
    return options;
}

}  // namespace aerie
