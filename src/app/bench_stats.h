// What a load came to: rates, percentiles, the steady window; as text and as JSON.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "app/bench_load.h"
#include "base/json.h"

namespace aerie::bench {

// NaN where there is nothing to measure: no window, one token a request, every request failed.
struct Summary {
    int num_requests = 0, num_failed = 0;
    double duration_s = 0;  // from the first start to the last end
    double output_tokens_per_s = 0;
    double steady_s = 0;  // the time during which all streams ran
    double steady_output_tokens_per_s = 0;
    double input_tokens_per_s = 0;  // prompt tokens of the requests that were answered
    double computed_prompt_tokens = 0;  // of these, without those that the server had cached
    double ttft_p50_ms = 0, ttft_p99_ms = 0;    // from a request's start to its first token
    double inter_token_p50_ms = 0, inter_token_p99_ms = 0;
    double e2e_p50_ms = 0, e2e_p99_ms = 0;      // from a request's start to its last byte
    std::vector<std::pair<std::string, int>> failures = {};  // message, count; the most first
    bool counted_by_ids = true;
};

// A figure of the summary: the same list makes the tables and the JSON.
struct Metric {
    const char* key;
    const char* label;
    double Summary::*value;
    bool less_is_better;
};
extern const std::vector<Metric> kMetrics;

// Linear between the nearest ranks, as numpy.nanpercentile; `percent` in [0, 100]. NaN of nothing.
double percentile(std::vector<double> values, double percent);

struct SteadyWindow {
    double seconds = 0;
    int64_t num_tokens = 0;
};
// The times at which `concurrency` requests were between their first and their last token, and the
// tokens that came in them. With one wave of requests this is the window from the last first token
// to the first last token.
SteadyWindow steady_window(const std::vector<RequestRecord>& requests, int concurrency);

Summary summarize(const LoadResult& result, const LoadShape& shape);

std::string describe(const LoadShape& shape);  // "64 requests, 16 at a time, …"
std::string table(const Summary& summary, const LoadShape& shape);
std::string failure_lines(const Summary& summary);  // each message once, with its count
Json to_json(const Summary& summary);
Json to_json(const LoadShape& shape);

// "12.34", with as many decimals as make four digits; "-" for NaN.
std::string figure(double value);

}  // namespace aerie::bench
