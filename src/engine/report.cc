// What a leader tells of its steps: SGLang's log lines and gauges.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/leader.h"

namespace aerie::engine {
namespace {

constexpr int kDecodeLogInterval = 40;  // steps

double usage(const schedule::Counts& counts) {
    return counts.capacity == 0 ? 0 : static_cast<double>(counts.used_tokens) / counts.capacity;
}

}  // namespace

void Leader::log_prefill(const schedule::Plan& plan) {
    int new_tokens = 0, cached = 0;
    for (const auto& entry : plan.prefill) {
        new_tokens += entry.num_tokens;
        cached += entry.first == entry.sequence->num_cached ? entry.first : 0;
    }
    const auto counts = scheduler_.counts();
    const double seconds = seconds_since(window_begin_);
    log_info("Prefill batch, #new-seq: {}, #new-token: {}, #cached-token: {}, token usage: {:.2f}, "
             "#running-req: {}, #queue-req: {}, input throughput (token/s): {:.2f}",
             plan.prefill.size(), new_tokens, cached, usage(counts), counts.num_running,
             counts.num_waiting, seconds > 0 ? new_tokens / seconds : 0.0);
    const int prompt = new_tokens + cached;
    options_.metrics.cache_hit_rate.set(prompt == 0 ? 0 : static_cast<double>(cached) / prompt);
    if (plan.decode.empty()) window_begin_ = Clock::now();
}

void Leader::log_decode(const schedule::Plan& plan) {
    const double accept_length = num_decoded_ > 0 ? num_gained_ / num_decoded_ : 1;
    options_.metrics.spec_accept_length.set(accept_length);
    options_.metrics.spec_accept_rate.set(num_drafted_ > 0 ? num_accepted_ / num_drafted_ : 0);
    options_.metrics.mtp_num_steps.set(num_decoded_ > 0 ? num_drafted_ / num_decoded_ : 0);
    if (++decode_steps_ % kDecodeLogInterval != 0) return;
    for (double* sum : {&num_decoded_, &num_gained_, &num_drafted_, &num_accepted_}) *sum /= 2;
    const auto counts = scheduler_.counts();
    const double seconds = seconds_since(window_begin_);
    const double throughput = seconds > 0 ? tokens_in_window_ / seconds : 0;
    options_.metrics.gen_throughput.set(throughput);
    log_info("Decode batch, #running-req: {}, #token: {}, token usage: {:.2f}, accept len: {:.2f}, "
             "gen throughput (token/s): {:.2f}, #queue-req: {}",
             plan.decode.size(), counts.used_tokens, usage(counts), accept_length, throughput,
             counts.num_waiting);
    window_begin_ = Clock::now();
    tokens_in_window_ = 0;
}

void Leader::update_gauges(const schedule::Plan& plan) {
    const auto counts = scheduler_.counts();
    const auto& m = options_.metrics;
    m.num_running_reqs.set(counts.num_running);
    m.num_queue_reqs.set(counts.num_waiting);
    m.token_usage.set(usage(counts));
    m.num_used_tokens.set(static_cast<double>(counts.used_tokens));
    m.kv_available_tokens.set(
        static_cast<double>(std::max<int64_t>(counts.free_tokens - counts.evictable_tokens, 0)));
    m.kv_evictable_tokens.set(static_cast<double>(counts.evictable_tokens));
    m.prefix_host_tokens.set(static_cast<double>(counts.host_tokens));
    m.prefix_file_tokens.set(static_cast<double>(counts.file_tokens));
    const auto tell = [](const metrics::Counter& counter, uint64_t now, uint64_t& told) {
        counter.add(static_cast<double>(now - std::exchange(told, now)));
    };
    tell(m.prefix_hit_tokens[0], counts.num_device_hits, told_hits_[0]);
    tell(m.prefix_hit_tokens[1], counts.num_host_hits, told_hits_[1]);
    tell(m.prefix_hit_tokens[2], counts.num_file_hits, told_hits_[2]);
    tell(m.prefix_lost_pages, counts.num_lost_pages, told_lost_pages_);
    m.new_token_ratio.set(counts.new_token_ratio);
    m.num_retracted_reqs.set(static_cast<double>(plan.retracted.size()));
    m.num_decode_prealloc_queue_reqs.set(counts.num_queued);
    m.num_decode_transfer_queue_reqs.set(counts.num_offered);
    m.num_prefill_inflight_queue_reqs.set(counts.num_prefilled);
}

}  // namespace aerie::engine
