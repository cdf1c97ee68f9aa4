// The handles that each component counts with. Making one makes its series, at 0.
#pragma once

#include <array>
#include <iterator>
#include <string>

#include "metrics/names.h"
#include "metrics/registry.h"

namespace aerie::metrics {

// The labels of one attention replica.
struct ReplicaLabels {
    std::string model_name;
    std::string engine_type;  // unified, prefill, decode
    int dp_rank = 0;
};

// One attention replica. All its ranks add to the byte counters and to replays; times and gauges
// come from its leader (tp 0, cp 0) only, so that there is one series for each dp_rank.
struct AttentionMetrics {
    AttentionMetrics() = default;  // counts nothing
    AttentionMetrics(Registry& registry, const ReplicaLabels& labels);

    Histogram forward_time_prefill;  // ae_sep_attention_forward_time
    Histogram forward_time_decode;
    Counter dispatch_bytes;
    Counter combine_bytes;
    Histogram dispatch_time;
    Histogram combine_wait_time;
    Gauge microbatches;
    Counter replays;
    Counter eager_steps;

    Counter kv_transfer_bytes_active;  // counted by who writes or reads; between nodes only
    Counter kv_transfer_bytes_passive;
    Counter active_transfers;  // ae_sep_active_transfer_count
    Counter passive_transfers;
    std::array<Counter, std::size(kKvPolicyReasons)> kv_policy;  // [kKvPolicyReasons]
    Histogram kv_transfer_time;

    Gauge num_running_reqs;
    Gauge num_queue_reqs;
    Gauge token_usage;
    Gauge num_used_tokens;
    Gauge max_total_num_tokens;
    Gauge kv_available_tokens;
    Gauge kv_evictable_tokens;
    Gauge gen_throughput;
    Gauge cache_hit_rate;
    std::array<Counter, std::size(kPrefixTiers)> prefix_hit_tokens;  // [kPrefixTiers]
    Gauge prefix_host_tokens;
    Gauge prefix_file_tokens;
    Counter prefix_lost_pages;
    Gauge new_token_ratio;
    Gauge num_retracted_reqs;
    Counter num_retracted_requests;
    Gauge spec_accept_length;
    Gauge spec_accept_rate;
    Gauge mtp_num_steps;
    Gauge num_decode_prealloc_queue_reqs;
    Gauge num_decode_transfer_queue_reqs;
    Gauge num_prefill_inflight_queue_reqs;
    Histogram queue_time;
    Gauge num_grammar_queue_reqs;
    Histogram grammar_compilation_time;
    Counter num_grammar_cache_hits;
};

// One expert rank. The ranks of all copies with the same ep_rank share their series; the times are
// shared by all expert ranks.
struct ExpertMetrics {
    ExpertMetrics() = default;  // counts nothing
    ExpertMetrics(Registry& registry, const std::string& model_name, int ep_rank);

    Histogram forward_time_prefill;  // ae_sep_expert_forward_time
    Histogram forward_time_decode;
    Histogram idle_time;
    Counter tokens;
};

// The frontend. num_requests counts those that ended, as SGLang does; an aborted one counts in
// both.
struct FrontendMetrics {
    FrontendMetrics() = default;  // counts nothing
    FrontendMetrics(Registry& registry, const std::string& model_name);

    Counter prompt_tokens;
    Counter generation_tokens;
    Counter cached_tokens;
    Counter num_requests;
    Counter num_aborted_requests;
    Histogram time_to_first_token;
    Histogram inter_token_latency;
    Histogram e2e_request_latency;
    Gauge startup_time;
};

// One route of the HTTP server. The series of a status code appears with its first response, that
// of 200 at the start. Takes a lock for each response: not for the layer path.
class HttpMetrics {
  public:
    HttpMetrics() = default;  // counts nothing
    HttpMetrics(Registry& registry, std::string endpoint, std::string method);

    void began() const;
    void ended(int status_code) const;

  private:
    Registry* registry_ = nullptr;
    std::string endpoint_;
    std::string method_;
    Counter requests_;
    Gauge active_;
};

// What the launcher counts of the hosts: one up for each node and role.
struct HostMetrics {
    HostMetrics() = default;  // counts nothing
    HostMetrics(Registry& registry, int node, const std::string& role);

    Gauge up;
    Counter restarts;  // one series for all nodes
};

}  // namespace aerie::metrics
