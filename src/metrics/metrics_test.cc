#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <thread>

#include "metrics/components.h"
#include "metrics/registry.h"

namespace aerie::metrics {
namespace {

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

const Family* find(const Snapshot& snapshot, std::string_view name) {
    for (const Family& family : snapshot)
        if (family.name == name) return &family;
    return nullptr;
}

struct Everything {
    Registry registry;
    AttentionMetrics attention{registry, {"demo", "decode", 3}};
    ExpertMetrics expert{registry, "demo", 1};
    FrontendMetrics frontend{registry, "demo"};
    HttpMetrics http{registry, "/generate", "POST"};
    HostMetrics host{registry, 2, "expert"};
};

TEST(Names, AreUniqueAndComplete) {
    std::set<std::string_view> names;
    for (const Metric& row : kMetrics) {
        EXPECT_TRUE(names.insert(row.name).second) << row.name;
        EXPECT_FALSE(row.help.empty()) << row.name;
        EXPECT_EQ(row.type == Type::kHistogram, !row.buckets.empty()) << row.name;
        EXPECT_TRUE(std::is_sorted(row.buckets.begin(), row.buckets.end())) << row.name;
    }
    EXPECT_EQ(std::size(buckets::kLayer), 12u);
    EXPECT_EQ(buckets::kLayer[0], 1e-5);
    EXPECT_EQ(buckets::kLayer[11], 1);
}

// Each row of the table is made by some component, and stands there at 0 before anything happens.
TEST(Components, EverySeriesExistsFromTheStart) {
    Everything all;
    const Snapshot snapshot = all.registry.collect();
    const std::string text = to_text(snapshot);
    for (const Metric& row : kMetrics) {
        const Family* family = find(snapshot, row.name);
        ASSERT_TRUE(family) << row.name;
        EXPECT_TRUE(has(text, "# TYPE " + std::string(row.name) + " ")) << row.name;
        if (row.name.starts_with("process_")) continue;
        for (const Sample& sample : family->samples) {
            EXPECT_EQ(sample.value, 0) << row.name;
            EXPECT_EQ(sample.count, 0u) << row.name;
        }
    }
    EXPECT_TRUE(has(text,
                    "sglang:ae_sep_kv_transfer_bytes{model_name=\"demo\","
                    "engine_type=\"decode\",dp_rank=\"3\",mode=\"passive\"} 0\n"));
    EXPECT_TRUE(has(text,
                    "sglang:ae_sep_expert_tokens_total{model_name=\"demo\","
                    "ep_rank=\"1\"} 0\n"));
    EXPECT_TRUE(has(text, "sglang:ae_sep_host_up{node=\"node-2\",role=\"expert\"} 0\n"));
    EXPECT_TRUE(has(text, "sglang:ae_sep_host_restarts_total 0\n"));
}

TEST(Registry, CountsFromManyThreads) {
    Registry registry;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            const AttentionMetrics mine(registry, {"demo", "unified", 0});  // the same series
            for (int j = 0; j < 1000; ++j) {
                mine.dispatch_bytes.add(2);
                mine.forward_time_decode.observe(3e-5);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    const Snapshot snapshot = registry.collect();
    EXPECT_EQ(total(snapshot, "sglang:ae_sep_dispatch_bytes"), 8000);
    EXPECT_EQ(total(snapshot, "sglang:ae_sep_attention_forward_time", {{"phase", "decode"}}), 4000);
    EXPECT_EQ(total(snapshot, "sglang:ae_sep_attention_forward_time", {{"phase", "prefill"}}), 0);
    const Sample& sample = find(snapshot, "sglang:ae_sep_attention_forward_time")->samples[0];
    ASSERT_EQ(sample.bounds.size(), 13u);
    EXPECT_EQ(sample.cumulative[1], 0u);     // <= 20 µs
    EXPECT_EQ(sample.cumulative[2], 4000u);  // <= 50 µs
    EXPECT_NEAR(sample.sum, 0.12, 1e-9);
}

TEST(Registry, HandlesWithoutOneCountNothing) {
    AttentionMetrics none;
    none.dispatch_bytes.add(5);
    none.forward_time_decode.observe(1);
    none.token_usage.set(1);
    HttpMetrics().ended(200);
    EXPECT_EQ(none.dispatch_bytes.value(), 0);
}

TEST(Registry, HttpCountsByStatus) {
    Everything all;
    all.http.began();
    all.http.began();
    all.http.ended(429);
    const std::string text = to_text(all.registry.collect());
    EXPECT_TRUE(has(text,
                    "sglang:http_responses_total{endpoint=\"/generate\","
                    "status_code=\"429\",method=\"POST\"} 1\n"));
    EXPECT_TRUE(has(text, "status_code=\"200\",method=\"POST\"} 0\n"));
    EXPECT_TRUE(
        has(text, "sglang:http_requests_active{endpoint=\"/generate\",method=\"POST\"} 1\n"));
}

TEST(Registry, ReadsTheProcess) {
    const Snapshot snapshot = Registry().collect();
    EXPECT_GT(total(snapshot, "process_resident_memory_bytes"), 1e5);
    EXPECT_GT(total(snapshot, "process_virtual_memory_bytes"),
              total(snapshot, "process_resident_memory_bytes"));
    EXPECT_GE(total(snapshot, "process_open_fds"), 3);
    const double start = total(snapshot, "process_start_time_seconds");
    EXPECT_LT(std::abs(start - static_cast<double>(time(nullptr))), 3600);
}

TEST(Merge, AddsCountersAndKeepsTheLargestRatio) {
    Registry first, second;
    AttentionMetrics a(first, {"demo", "decode", 0}), b(second, {"demo", "decode", 0}),
        c(second, {"demo", "decode", 1});
    a.dispatch_bytes.add(1);
    b.dispatch_bytes.add(2);
    c.dispatch_bytes.add(4);
    a.num_running_reqs.set(5);
    b.num_running_reqs.set(6);
    a.token_usage.set(0.5);
    b.token_usage.set(0.25);
    a.dispatch_time.observe(1e-3);
    b.dispatch_time.observe(5);
    const Snapshot all = merge({first.collect(), second.collect()});
    EXPECT_EQ(total(all, "sglang:ae_sep_dispatch_bytes"), 7);
    EXPECT_EQ(total(all, "sglang:ae_sep_dispatch_bytes", {{"dp_rank", "0"}}), 3);
    EXPECT_EQ(total(all, "sglang:num_running_reqs"), 11);
    EXPECT_EQ(total(all, "sglang:token_usage", {{"dp_rank", "0"}}), 0.5);
    EXPECT_EQ(total(all, "sglang:ae_sep_dispatch_time"), 2);
    EXPECT_EQ(find(all, "sglang:ae_sep_dispatch_time")->samples.size(), 2u);
    EXPECT_EQ(find(all, "sglang:ae_sep_dispatch_time")->samples[0].cumulative[11], 1u);
    EXPECT_EQ(merge({all}), all);
}

TEST(Merge, LeavesOutWhatDoesNotFit) {
    Family counter{.name = "x", .help = "", .type = Type::kCounter};
    counter.samples.push_back({.value = 1});
    Family gauge = counter;
    gauge.type = Type::kGauge;
    Family histogram{.name = "h", .help = "", .type = Type::kHistogram};
    histogram.samples.push_back({.count = 1, .bounds = {1}, .cumulative = {1}});
    Family other = histogram;
    other.samples[0].bounds = {2};
    Family torn = histogram;
    torn.samples[0].cumulative = {};
    const Snapshot all = merge({{counter, histogram}, {gauge, other}, {torn}});
    EXPECT_EQ(total(all, "x"), 1);
    EXPECT_EQ(total(all, "h"), 1);
}

TEST(Text, EscapesLabels) {
    Registry registry;
    FrontendMetrics frontend(registry, "a\"b\\c\nd");
    EXPECT_TRUE(has(to_text(registry.collect()),
                    "sglang:num_requests_total{model_name=\"a\\\"b\\\\c\\nd\"} 0"));
}

}  // namespace
}  // namespace aerie::metrics
