// Every metric that aerie exports, in one table. Names that SGLang has too mean the same here.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>

#include "metrics/buckets.h"

namespace aerie::metrics {

enum class Type : uint8_t { kCounter = 0, kGauge, kHistogram };

// How series with equal labels of several processes become one.
enum class Merge : uint8_t {
    kSum,
    kMax,  // ratios, for which a sum has no meaning
    kMin,  // a point in time
};

struct Metric {
    std::string_view name;
    Type type;
    std::string_view labels;  // names of the labels, separated by commas
    std::string_view help;
    std::span<const double> buckets = {};  // histograms: upper bounds
    Merge merge = Merge::kSum;
};

inline constexpr std::string_view kReplica = "model_name,engine_type,dp_rank";
inline constexpr std::string_view kReplicaPhase = "model_name,engine_type,dp_rank,phase";
inline constexpr std::string_view kModel = "model_name";

inline constexpr Metric kMetrics[] = {
    // The separation.
    {"sglang:ae_sep_attention_forward_time", Type::kHistogram, kReplicaPhase,
     "Seconds that attention ranks compute for one microbatch of one layer.", buckets::kLayer},
    {"sglang:ae_sep_expert_forward_time", Type::kHistogram, "model_name,phase",
     "Seconds that expert ranks compute for one microbatch of one layer.", buckets::kLayer},
    {"sglang:ae_sep_kv_transfer_bytes", Type::kCounter, "model_name,engine_type,dp_rank,mode",
     "Bytes of KV cache moved between different nodes; 0 where nothing is separated."},
    {"sglang:ae_sep_active_transfer_count", Type::kCounter, kReplica,
     "Requests whose KV the prefill side pushed."},
    {"sglang:ae_sep_passive_transfer_count", Type::kCounter, kReplica,
     "Requests whose KV the decode side pulled."},
    {"sglang:ae_sep_kv_policy_total", Type::kCounter, "model_name,engine_type,dp_rank,reason",
     "Prefills by what decided whether their KV is pushed or pulled."},
    {"sglang:ae_sep_kv_transfer_time", Type::kHistogram, kReplica,
     "Seconds from the first byte of a request's KV to its acknowledgement.", buckets::kTransfer},
    {"sglang:ae_sep_dispatch_bytes", Type::kCounter, kReplica,
     "Bytes sent from attention to expert ranks."},
    {"sglang:ae_sep_combine_bytes", Type::kCounter, kReplica,
     "Bytes received by attention from expert ranks."},
    {"sglang:ae_sep_dispatch_time", Type::kHistogram, kReplica,
     "Seconds to send one microbatch of one layer to the expert ranks.", buckets::kLayer},
    {"sglang:ae_sep_combine_wait_time", Type::kHistogram, kReplica,
     "Seconds that attention waits for the expert ranks, for one microbatch of one layer.",
     buckets::kLayer},
    {"sglang:ae_sep_expert_idle_time", Type::kHistogram, kModel,
     "Seconds that an expert rank waits for its next group of rows.", buckets::kLayer},
    {"sglang:ae_sep_microbatches",
     Type::kGauge,
     kReplica,
     "Microbatches that the last step kept in flight.",
     {},
     Merge::kMax},
    {"sglang:ae_sep_expert_tokens_total", Type::kCounter, "model_name,ep_rank",
     "Token rows computed by the experts of a rank."},
    {"sglang:ae_sep_host_up",
     Type::kGauge,
     "node,role",
     "1 while the node's host process lives.",
     {},
     Merge::kMax},
    {"sglang:ae_sep_eager_steps_total", Type::kCounter, kReplica,
     "Decode steps of a GPU that were no CUDA graph."},
    {"sglang:ae_sep_replays_total", Type::kCounter, kReplica,
     "Dispatches sent again because an expert host died."},
    {"sglang:ae_sep_host_restarts_total", Type::kCounter, "", "Host processes started again."},

    // A replica.
    {"sglang:num_running_reqs", Type::kGauge, kReplica, "Requests that run."},
    {"sglang:num_queue_reqs", Type::kGauge, kReplica, "Requests that wait."},
    {"sglang:token_usage", Type::kGauge, kReplica,
     "Part of the KV cache in use, 0 to 1.", {}, Merge::kMax},
    {"sglang:num_used_tokens", Type::kGauge, kReplica, "Tokens of KV cache in use."},
    {"sglang:max_total_num_tokens", Type::kGauge, kReplica, "Tokens that the KV cache holds."},
    {"sglang:kv_available_tokens", Type::kGauge, kReplica, "Free tokens of the KV cache."},
    {"sglang:kv_evictable_tokens", Type::kGauge, kReplica,
     "Tokens that only the prefix cache holds."},
    {"sglang:gen_throughput", Type::kGauge, kReplica, "Tokens generated a second."},
    {"sglang:cache_hit_rate", Type::kGauge, kReplica,
     "Part of the last prefill batch's prompt tokens that was cached.", {}, Merge::kMax},
    {"sglang:ae_sep_prefix_hit_tokens", Type::kCounter, "model_name,engine_type,dp_rank,tier",
     "Prompt tokens whose KV was found in the KV cache (tier device), or was brought back from host "
     "memory (host) or from the disk (file)."},
    {"sglang:ae_sep_prefix_host_tokens", Type::kGauge, kReplica,
     "Tokens that the prefix cache holds in host memory."},
    {"sglang:ae_sep_prefix_file_tokens", Type::kGauge, kReplica,
     "Tokens that the prefix cache holds on the disk."},
    {"sglang:ae_sep_prefix_lost_pages_total", Type::kCounter, kReplica,
     "Pages of evicted KV that the disk did not give back as they were; they are computed again."},
    {"sglang:new_token_ratio",
     Type::kGauge,
     kReplica,
     "Part of the running requests' remaining tokens that admission reserves.",
     {},
     Merge::kMax},
    {"sglang:num_retracted_reqs", Type::kGauge, kReplica, "Requests retracted in the last step."},
    {"sglang:num_retracted_requests_total", Type::kCounter, kReplica, "Requests retracted."},
    {"sglang:spec_accept_length",
     Type::kGauge,
     kReplica,
     "Mean tokens that a decode step gains for a request.",
     {},
     Merge::kMax},
    {"sglang:spec_accept_rate", Type::kGauge, kReplica,
     "Part of the drafts that was accepted.", {}, Merge::kMax},
    {"sglang:ae_sep_mtp_num_steps", Type::kGauge, kReplica,
     "Mean drafts of a request in a decode step; mtp_num_steps is the most.", {}, Merge::kMax},
    {"sglang:num_decode_prealloc_queue_reqs", Type::kGauge, kReplica,
     "Requests that wait for KV blocks of a decode replica."},
    {"sglang:num_decode_transfer_queue_reqs", Type::kGauge, kReplica,
     "Requests whose KV is on its way to a decode replica."},
    {"sglang:num_prefill_inflight_queue_reqs", Type::kGauge, kReplica,
     "Requests that a prefill replica has computed and whose KV is not acknowledged."},
    {"sglang:queue_time_seconds", Type::kHistogram, kReplica,
     "Seconds from a request's arrival at a replica to its first step.", buckets::kQueue},
    {"sglang:num_grammar_queue_reqs", Type::kGauge, kReplica,
     "Requests that wait for their grammar to be compiled."},
    {"sglang:grammar_compilation_time_seconds", Type::kHistogram, kReplica,
     "Seconds that a grammar took to compile.", buckets::kTransfer},
    {"sglang:num_grammar_cache_hit_total", Type::kCounter, kReplica,
     "Requests whose grammar was compiled already."},

    // The frontend.
    {"sglang:prompt_tokens_total", Type::kCounter, kModel, "Prompt tokens."},
    {"sglang:generation_tokens_total", Type::kCounter, kModel, "Generated tokens."},
    {"sglang:cached_tokens_total", Type::kCounter, kModel, "Prompt tokens found in the cache."},
    {"sglang:num_requests_total", Type::kCounter, kModel, "Requests that ended."},
    {"sglang:num_aborted_requests_total", Type::kCounter, kModel, "Requests that were aborted."},
    {"sglang:time_to_first_token_seconds", Type::kHistogram, kModel,
     "Seconds from a request's arrival to its first token.", buckets::kFirstToken},
    {"sglang:inter_token_latency_seconds", Type::kHistogram, kModel,
     "Seconds between two tokens of a request.", buckets::kInterToken},
    {"sglang:e2e_request_latency_seconds", Type::kHistogram, kModel,
     "Seconds from a request's arrival to its end.", buckets::kEndToEnd},
    {"sglang:startup_time_seconds",
     Type::kGauge,
     kModel,
     "Seconds from the start of the server to its first possible answer.",
     {},
     Merge::kMax},
    {"sglang:http_requests_total", Type::kCounter, "endpoint,method", "HTTP requests received."},
    {"sglang:http_responses_total", Type::kCounter, "endpoint,status_code,method",
     "HTTP responses sent."},
    {"sglang:http_requests_active", Type::kGauge, "endpoint,method",
     "HTTP requests not answered to the end."},

    // A process; summed over all host processes.
    {"process_cpu_seconds_total", Type::kCounter, "", "Processor seconds, user and system."},
    {"process_resident_memory_bytes", Type::kGauge, "", "Resident memory."},
    {"process_virtual_memory_bytes", Type::kGauge, "", "Virtual memory."},
    {"process_open_fds", Type::kGauge, "", "Open file descriptors."},
    {"process_start_time_seconds",
     Type::kGauge,
     "",
     "Start of the oldest process, Unix time.",
     {},
     Merge::kMin},
};

// The values of ae_sep_kv_policy_total's reason. The last three mean a pull, default a push;
// configured is what kv_transfer says.
inline constexpr std::string_view kKvPolicyReasons[] = {"configured", "default", "late_binding",
                                                        "prompt_cached", "prefix_held"};
// Those of ae_sep_prefix_hit_tokens' tier.
inline constexpr const char* kPrefixTiers[] = {"device", "host", "file"};

// The table's row of that name; a name that is not in it does not compile.
consteval const Metric& metric(std::string_view name) {
    for (const Metric& row : kMetrics)
        if (row.name == name) return row;
    throw "no metric of this name";
}

// The same at run time, for names that came from another process; nullptr where unknown.
const Metric* find_metric(std::string_view name);

}  // namespace aerie::metrics
