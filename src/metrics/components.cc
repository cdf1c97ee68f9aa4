#include "metrics/components.h"

namespace aerie::metrics {
namespace {

void add_spec_series(Registry& registry, const Labels& labels, AttentionMetrics& into) {
    into.spec_accept_length = registry.gauge(metric("sglang:spec_accept_length"), labels);
    into.spec_accept_rate = registry.gauge(metric("sglang:spec_accept_rate"), labels);
    into.mtp_num_steps = registry.gauge(metric("sglang:ae_sep_mtp_num_steps"), labels);
}

void add_grammar_series(Registry& registry, const Labels& labels, AttentionMetrics& into) {
    into.num_grammar_queue_reqs = registry.gauge(metric("sglang:num_grammar_queue_reqs"), labels);
    into.grammar_compilation_time =
        registry.histogram(metric("sglang:grammar_compilation_time_seconds"), labels);
    into.num_grammar_cache_hits =
        registry.counter(metric("sglang:num_grammar_cache_hit_total"), labels);
}

}  // namespace

AttentionMetrics::AttentionMetrics(Registry& registry, const ReplicaLabels& replica) {
    const Labels labels = {{"model_name", replica.model_name},
                           {"engine_type", replica.engine_type},
                           {"dp_rank", std::to_string(replica.dp_rank)}};
    const auto with = [&](const char* name, const char* value) {
        Labels more = labels;
        more.emplace_back(name, value);
        return more;
    };
    const Metric& forward_time = metric("sglang:ae_sep_attention_forward_time");
    forward_time_prefill = registry.histogram(forward_time, with("phase", "prefill"));
    forward_time_decode = registry.histogram(forward_time, with("phase", "decode"));
    dispatch_bytes = registry.counter(metric("sglang:ae_sep_dispatch_bytes"), labels);
    combine_bytes = registry.counter(metric("sglang:ae_sep_combine_bytes"), labels);
    dispatch_time = registry.histogram(metric("sglang:ae_sep_dispatch_time"), labels);
    combine_wait_time = registry.histogram(metric("sglang:ae_sep_combine_wait_time"), labels);
    microbatches = registry.gauge(metric("sglang:ae_sep_microbatches"), labels);
    replays = registry.counter(metric("sglang:ae_sep_replays_total"), labels);
    eager_steps = registry.counter(metric("sglang:ae_sep_eager_steps_total"), labels);

    kv_transfer_bytes_active =
        registry.counter(metric("sglang:ae_sep_kv_transfer_bytes"), with("mode", "active"));
    kv_transfer_bytes_passive =
        registry.counter(metric("sglang:ae_sep_kv_transfer_bytes"), with("mode", "passive"));
    active_transfers = registry.counter(metric("sglang:ae_sep_active_transfer_count"), labels);
    passive_transfers = registry.counter(metric("sglang:ae_sep_passive_transfer_count"), labels);
    for (size_t i = 0; i < kv_policy.size(); ++i) {
        kv_policy[i] = registry.counter(metric("sglang:ae_sep_kv_policy_total"),
                                        with("reason", std::string(kKvPolicyReasons[i]).c_str()));
    }
    kv_transfer_time = registry.histogram(metric("sglang:ae_sep_kv_transfer_time"), labels);
    num_running_reqs = registry.gauge(metric("sglang:num_running_reqs"), labels);
    num_queue_reqs = registry.gauge(metric("sglang:num_queue_reqs"), labels);
    token_usage = registry.gauge(metric("sglang:token_usage"), labels);
    num_used_tokens = registry.gauge(metric("sglang:num_used_tokens"), labels);
    max_total_num_tokens = registry.gauge(metric("sglang:max_total_num_tokens"), labels);
    kv_available_tokens = registry.gauge(metric("sglang:kv_available_tokens"), labels);
    kv_evictable_tokens = registry.gauge(metric("sglang:kv_evictable_tokens"), labels);
    gen_throughput = registry.gauge(metric("sglang:gen_throughput"), labels);
    cache_hit_rate = registry.gauge(metric("sglang:cache_hit_rate"), labels);
    const Metric& prefix_hits = metric("sglang:ae_sep_prefix_hit_tokens");
    for (size_t i = 0; i < prefix_hit_tokens.size(); ++i)
        prefix_hit_tokens[i] = registry.counter(prefix_hits, with("tier", kPrefixTiers[i]));
    prefix_host_tokens = registry.gauge(metric("sglang:ae_sep_prefix_host_tokens"), labels);
    prefix_file_tokens = registry.gauge(metric("sglang:ae_sep_prefix_file_tokens"), labels);
    prefix_lost_pages = registry.counter(metric("sglang:ae_sep_prefix_lost_pages_total"), labels);
    new_token_ratio = registry.gauge(metric("sglang:new_token_ratio"), labels);
    num_retracted_reqs = registry.gauge(metric("sglang:num_retracted_reqs"), labels);
    num_retracted_requests =
        registry.counter(metric("sglang:num_retracted_requests_total"), labels);
    num_decode_prealloc_queue_reqs =
        registry.gauge(metric("sglang:num_decode_prealloc_queue_reqs"), labels);
    num_decode_transfer_queue_reqs =
        registry.gauge(metric("sglang:num_decode_transfer_queue_reqs"), labels);
    num_prefill_inflight_queue_reqs =
        registry.gauge(metric("sglang:num_prefill_inflight_queue_reqs"), labels);
    queue_time = registry.histogram(metric("sglang:queue_time_seconds"), labels);
    add_spec_series(registry, labels, *this);
    add_grammar_series(registry, labels, *this);
}

ExpertMetrics::ExpertMetrics(Registry& registry, const std::string& model_name, int ep_rank) {
    const Labels model = {{"model_name", model_name}};
    const Metric& forward = metric("sglang:ae_sep_expert_forward_time");
    forward_time_prefill =
        registry.histogram(forward, {{"model_name", model_name}, {"phase", "prefill"}});
    forward_time_decode =
        registry.histogram(forward, {{"model_name", model_name}, {"phase", "decode"}});
    idle_time = registry.histogram(metric("sglang:ae_sep_expert_idle_time"), model);
    tokens = registry.counter(metric("sglang:ae_sep_expert_tokens_total"),
                              {{"model_name", model_name}, {"ep_rank", std::to_string(ep_rank)}});
}

FrontendMetrics::FrontendMetrics(Registry& registry, const std::string& model_name) {
    const Labels labels = {{"model_name", model_name}};
    prompt_tokens = registry.counter(metric("sglang:prompt_tokens_total"), labels);
    generation_tokens = registry.counter(metric("sglang:generation_tokens_total"), labels);
    cached_tokens = registry.counter(metric("sglang:cached_tokens_total"), labels);
    num_requests = registry.counter(metric("sglang:num_requests_total"), labels);
    num_aborted_requests = registry.counter(metric("sglang:num_aborted_requests_total"), labels);
    time_to_first_token = registry.histogram(metric("sglang:time_to_first_token_seconds"), labels);
    inter_token_latency = registry.histogram(metric("sglang:inter_token_latency_seconds"), labels);
    e2e_request_latency = registry.histogram(metric("sglang:e2e_request_latency_seconds"), labels);
    startup_time = registry.gauge(metric("sglang:startup_time_seconds"), labels);
}

HttpMetrics::HttpMetrics(Registry& registry, std::string endpoint, std::string method)
    : registry_(&registry), endpoint_(std::move(endpoint)), method_(std::move(method)) {
    const Labels labels = {{"endpoint", endpoint_}, {"method", method_}};
    requests_ = registry.counter(metric("sglang:http_requests_total"), labels);
    active_ = registry.gauge(metric("sglang:http_requests_active"), labels);
    registry.counter(metric("sglang:http_responses_total"),
                     {{"endpoint", endpoint_}, {"status_code", "200"}, {"method", method_}});
}

void HttpMetrics::began() const {
    requests_.add();
    active_.add(1);
}

void HttpMetrics::ended(int status_code) const {
    active_.add(-1);
    if (!registry_) return;
    registry_
        ->counter(metric("sglang:http_responses_total"),
                  {{"endpoint", endpoint_},
                   {"status_code", std::to_string(status_code)},
                   {"method", method_}})
        .add();
}

HostMetrics::HostMetrics(Registry& registry, int node, const std::string& role) {
    up = registry.gauge(metric("sglang:ae_sep_host_up"),
                        {{"node", "node-" + std::to_string(node)}, {"role", role}});
    restarts = registry.counter(metric("sglang:ae_sep_host_restarts_total"));
}

}  // namespace aerie::metrics
