#include "app/bench_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace aerie::bench {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

double per_second(double amount, double seconds) {
    return seconds > 0 ? amount / seconds : kNothing;
}

// Tokens that were read at once share the time since the read before.
void add_gaps(const RequestRecord& record, std::vector<double>& gaps_ms) {
    for (size_t i = 1; i < record.arrivals.size(); ++i) {
        const Arrival& arrival = record.arrivals[i];
        const double gap_s = arrival.at_s - record.arrivals[i - 1].at_s;
        gaps_ms.insert(gaps_ms.end(), static_cast<size_t>(arrival.num_tokens),
                       gap_s * 1e3 / arrival.num_tokens);
    }
}

std::vector<std::pair<std::string, int>> count_failures(
    const std::vector<RequestRecord>& requests) {
    std::map<std::string, int> counts;
    for (const RequestRecord& record : requests) {
        if (!record.failure.empty()) ++counts[record.failure];
    }
    std::vector<std::pair<std::string, int>> failures(counts.begin(), counts.end());
    std::stable_sort(failures.begin(), failures.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    return failures;
}

}  // namespace

const std::vector<Metric> kMetrics = {
    {"output_tokens_per_s", "output tokens/s, whole run", &Summary::output_tokens_per_s, false},
    {"steady_output_tokens_per_s", "output tokens/s, steady", &Summary::steady_output_tokens_per_s,
     false},
    {"input_tokens_per_s", "input tokens/s", &Summary::input_tokens_per_s, false},
    {"computed_prompt_tokens", "prompt tokens computed", &Summary::computed_prompt_tokens, true},
    {"ttft_p50_ms", "time to first token, p50 ms", &Summary::ttft_p50_ms, true},
    {"ttft_p99_ms", "time to first token, p99 ms", &Summary::ttft_p99_ms, true},
    {"inter_token_p50_ms", "inter-token time, p50 ms", &Summary::inter_token_p50_ms, true},
    {"inter_token_p99_ms", "inter-token time, p99 ms", &Summary::inter_token_p99_ms, true},
    {"e2e_p50_ms", "end to end, p50 ms", &Summary::e2e_p50_ms, true},
    {"e2e_p99_ms", "end to end, p99 ms", &Summary::e2e_p99_ms, true},
};

double percentile(std::vector<double> values, double percent) {
    std::erase_if(values, [](double value) { return std::isnan(value); });
    if (values.empty()) return kNothing;
    std::sort(values.begin(), values.end());
    const double rank = percent / 100 * static_cast<double>(values.size() - 1);
    const size_t below = static_cast<size_t>(rank);
    const size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (rank - static_cast<double>(below)) * (values[above] - values[below]);
}

SteadyWindow steady_window(const std::vector<RequestRecord>& requests, int concurrency) {
    struct Event {
        double at_s;
        int order;  // of events at the same time: tokens, then ends, then begins
        int num_tokens, running_change;
    };
    std::vector<Event> events;
    for (const RequestRecord& record : requests) {
        for (const Arrival& arrival : record.arrivals) {
            events.push_back({arrival.at_s, 0, arrival.num_tokens, 0});
        }
        if (record.arrivals.empty()) continue;
        events.push_back({record.arrivals.back().at_s, 1, 0, -1});
        events.push_back({record.arrivals.front().at_s, 2, 0, +1});
    }
    // A request with a single arrival ends before it begins, and so runs for no time at all.
    std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
        return std::pair(a.at_s, a.order) < std::pair(b.at_s, b.order);
    });
    SteadyWindow window;
    int running = 0;
    double before_s = 0;
    for (const Event& event : events) {
        if (running == concurrency) {
            window.seconds += event.at_s - before_s;
            window.num_tokens += event.num_tokens;
        }
        running += event.running_change;
        before_s = event.at_s;
    }
    return window;
}

Summary summarize(const LoadResult& result, const LoadShape& shape) {
    Summary summary;
    summary.num_requests = static_cast<int>(result.requests.size());
    summary.counted_by_ids = result.counted_by_ids;
    summary.failures = count_failures(result.requests);
    for (const auto& [message, count] : summary.failures) summary.num_failed += count;

    double begin_s = std::numeric_limits<double>::infinity(), end_s = 0;
    double num_output = 0, num_input = 0, num_cached = 0;
    std::vector<double> ttft_ms, gaps_ms, e2e_ms;
    int64_t index = 0;
    for (const RequestRecord& record : result.requests) {
        const auto prompt_len = static_cast<double>(prompt_ids(shape, index++).size());
        begin_s = std::min(begin_s, record.started_s);
        end_s = std::max(end_s, record.ended_s);
        for (const Arrival& arrival : record.arrivals) num_output += arrival.num_tokens;
        if (!record.arrivals.empty()) {
            num_input += prompt_len;
            num_cached += static_cast<double>(record.num_cached);
        }
        if (!record.failure.empty()) continue;  // half an answer says nothing about times
        ttft_ms.push_back((record.arrivals.front().at_s - record.started_s) * 1e3);
        e2e_ms.push_back((record.ended_s - record.started_s) * 1e3);
        add_gaps(record, gaps_ms);
    }
    const SteadyWindow steady = steady_window(result.requests, shape.concurrency);
    summary.duration_s = std::max(0.0, end_s - begin_s);
    summary.steady_s = steady.seconds;
    summary.output_tokens_per_s = per_second(num_output, summary.duration_s);
    summary.input_tokens_per_s = per_second(num_input, summary.duration_s);
    summary.computed_prompt_tokens = num_input - num_cached;
    summary.steady_output_tokens_per_s =
        per_second(static_cast<double>(steady.num_tokens), steady.seconds);
    summary.ttft_p50_ms = percentile(ttft_ms, 50);
    summary.ttft_p99_ms = percentile(ttft_ms, 99);
    summary.inter_token_p50_ms = percentile(gaps_ms, 50);
    summary.inter_token_p99_ms = percentile(gaps_ms, 99);
    summary.e2e_p50_ms = percentile(e2e_ms, 50);
    summary.e2e_p99_ms = percentile(e2e_ms, 99);
    return summary;
}

std::string figure(double value) {
    if (std::isnan(value)) return "-";
    const int digits = std::abs(value) < 1 ? 1 : 1 + static_cast<int>(std::log10(std::abs(value)));
    return fmt::format("{:.{}f}", value, std::clamp(4 - digits, 0, 3));
}

std::string describe(const LoadShape& shape) {
    std::string text =
        fmt::format("{} requests, {} at a time, {} prompt and {} output tokens, seed {}",
                    shape.requests, shape.concurrency, shape.prompt_len, shape.output_len,
                    shape.seed);
    if (!shape.examples.empty()) {
        text = fmt::format("{} requests, {} at a time, of {} examples", shape.requests,
                           shape.concurrency, shape.examples.size());
    } else if (shape.num_prefixes > 0) {
        text += fmt::format(", behind one of {} prefixes of {} tokens", shape.num_prefixes,
                            shape.prefix_len);
    }
    if (shape.rate > 0) text += fmt::format(", {} requests/s", shape.rate);
    return text;
}

std::string table(const Summary& summary, const LoadShape& shape) {
    std::string text = fmt::format("{}: {:.1f} s, {} failed\n\n", describe(shape),
                                   summary.duration_s, summary.num_failed);
    for (const Metric& metric : kMetrics) {
        text += fmt::format("{:<28} {:>10}", metric.label, figure(summary.*metric.value));
        if (metric.value == &Summary::steady_output_tokens_per_s) {
            text += summary.steady_s > 0
                        ? fmt::format("   while {} ran at once: {:.1f} s", shape.concurrency,
                                      summary.steady_s)
                        : fmt::format("   {} never ran at once", shape.concurrency);
        }
        text += '\n';
    }
    if (!summary.counted_by_ids) {
        text += "note: the server sends no token_ids; each chunk with text counts as a token\n";
    }
    return text;
}

std::string failure_lines(const Summary& summary) {
    constexpr size_t kShown = 10;
    std::string text;
    for (size_t i = 0; i < summary.failures.size(); ++i) {
        if (i == kShown) {
            text += fmt::format("error: {} further messages\n", summary.failures.size() - kShown);
            break;
        }
        const auto& [message, count] = summary.failures[i];
        text += fmt::format("error: {} of {} requests failed: {}\n", count, summary.num_requests,
                            message);
    }
    return text;
}

Json to_json(const Summary& summary) {
    Json json = Json::object()
                    .set("requests", summary.num_requests)
                    .set("failed", summary.num_failed)
                    .set("duration_s", summary.duration_s)
                    .set("steady_s", summary.steady_s);
    for (const Metric& metric : kMetrics) json.set(metric.key, summary.*metric.value);
    Json failures = Json::array();
    for (const auto& [message, count] : summary.failures) {
        failures.push_back(Json::object().set("message", message).set("count", count));
    }
    return json.set("failures", std::move(failures)).set("counted_by_ids", summary.counted_by_ids);
}

Json to_json(const LoadShape& shape) {
    return Json::object()
        .set("requests", shape.requests)
        .set("concurrency", shape.concurrency)
        .set("prompt_len", shape.prompt_len)
        .set("num_prefixes", shape.num_prefixes)
        .set("prefix_len", shape.prefix_len)
        .set("output_len", shape.output_len)
        .set("num_examples", static_cast<int64_t>(shape.examples.size()))
        .set("rate", shape.rate)
        .set("seed", shape.seed)
        .set("warmup", shape.warmup);
}

}  // namespace aerie::bench
