#include "app/bench_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "app/bench_compare.h"

namespace aerie::bench {
namespace {

using testing::HasSubstr;

TEST(Percentile, IsLinearBetweenRanks) {
    EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 50), 2.5);
    EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 0), 1);
    EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 100), 4);
    EXPECT_DOUBLE_EQ(percentile({0, 100}, 99), 99);
    EXPECT_DOUBLE_EQ(percentile({7}, 99), 7);
    EXPECT_DOUBLE_EQ(percentile({NAN, 7}, 50), 7);
    EXPECT_TRUE(std::isnan(percentile({}, 50)));
}

RequestRecord record(double started_s, std::vector<Arrival> arrivals, double ended_s) {
    return {.started_s = started_s, .ended_s = ended_s, .arrivals = std::move(arrivals),
            .failure = ""};
}

TEST(SteadyWindow, IsWhileAllStreamsRun) {
    // 0: ....t--t--t--t
    // 1: ......t--t--t--t      both run from 2 to 7
    const std::vector<RequestRecord> requests = {
        record(0, {{1, 1}, {3, 1}, {5, 1}, {7, 2}}, 7),
        record(0, {{2, 1}, {4, 1}, {6, 1}, {8, 1}}, 8)};
    const SteadyWindow both = steady_window(requests, 2);
    EXPECT_DOUBLE_EQ(both.seconds, 5);
    EXPECT_EQ(both.num_tokens, 6) << "those at 3, 4, 5, 6 and the two at 7; not those at 2 and 8";
    EXPECT_DOUBLE_EQ(steady_window(requests, 3).seconds, 0);
}

TEST(SteadyWindow, LeavesOutTheTimeBetweenWaves) {
    const std::vector<RequestRecord> requests = {
        record(0, {{1, 1}, {2, 1}, {3, 1}}, 3), record(3, {{10, 1}, {11, 1}, {12, 1}}, 12)};
    const SteadyWindow window = steady_window(requests, 1);
    EXPECT_DOUBLE_EQ(window.seconds, 4);
    EXPECT_EQ(window.num_tokens, 4);
    EXPECT_DOUBLE_EQ(steady_window({record(0, {{1, 1}}, 1)}, 1).seconds, 0)
        << "a single token runs for no time";
}

TEST(Summary, CountsTokensOfAllAndTimesOfWholeAnswers) {
    LoadResult result;
    result.requests = {record(0, {{0.5, 1}, {0.6, 1}, {0.8, 2}}, 1.0), record(1, {{1.5, 1}}, 2.0),
                       record(1, {}, 1.1)};
    result.requests[1].failure = result.requests[2].failure = "HTTP 503: busy";
    const LoadShape shape{.requests = 3, .concurrency = 1, .prompt_len = 10, .output_len = 4};
    const Summary summary = summarize(result, shape);
    EXPECT_EQ(summary.num_failed, 2);
    EXPECT_EQ(failure_lines(summary), "error: 2 of 3 requests failed: HTTP 503: busy\n");
    EXPECT_DOUBLE_EQ(summary.duration_s, 2);
    EXPECT_DOUBLE_EQ(summary.output_tokens_per_s, 2.5);
    EXPECT_DOUBLE_EQ(summary.input_tokens_per_s, 10) << "two of the prompts were computed";
    EXPECT_NEAR(summary.ttft_p50_ms, 500, 1e-9);
    EXPECT_NEAR(summary.e2e_p99_ms, 1000, 1e-9);
    EXPECT_NEAR(summary.inter_token_p50_ms, 100, 1e-9) << "100, and twice 200 / 2";
    EXPECT_NEAR(summary.steady_output_tokens_per_s, 10, 1e-9);
}

TEST(Summary, PromptTokensThatWereCachedAreNotComputed) {
    LoadResult result;
    result.requests = {record(0, {{0.5, 1}}, 1), record(0, {{0.5, 1}}, 1)};
    result.requests[1].num_cached = 64;
    const LoadShape shape{.requests = 2, .prompt_len = 10, .num_prefixes = 1, .prefix_len = 70};
    EXPECT_DOUBLE_EQ(summarize(result, shape).computed_prompt_tokens, 160 - 64);
}

TEST(Summary, WithoutAnyAnswerIsAllDashes) {
    LoadResult result;
    result.requests = {record(0, {}, 0)};
    result.requests[0].failure = "connect: Connection refused";
    const LoadShape shape{.requests = 1, .concurrency = 1};
    const Summary summary = summarize(result, shape);
    EXPECT_THAT(table(summary, shape), HasSubstr("time to first token, p50 ms           -\n"));
    EXPECT_TRUE(Json::parse(to_json(summary).dump()).ok());
    EXPECT_TRUE(to_json(summary)["ttft_p50_ms"].is_double());
}

TEST(Figure, HasFourDigits) {
    EXPECT_EQ(figure(0.98765), "0.988");
    EXPECT_EQ(figure(1.23456), "1.235");
    EXPECT_EQ(figure(12.3456), "12.35");
    EXPECT_EQ(figure(12345.6), "12346");
    EXPECT_EQ(figure(NAN), "-");
    EXPECT_EQ(figure(0), "0.000");
}

TEST(Compare, WithoutVersusIsSeparationOnAgainstOff) {
    Options options;
    options.compare = "--config 'a b.json' --tp-size 2";
    const std::vector<Side> sides = make_sides(options);
    const std::vector<std::string> common = {"--config", "a b.json", "--tp-size", "2",
                                             "--enable-ae-separation"};
    for (const auto& [side, value] : {std::pair{0, "true"}, std::pair{1, "false"}}) {
        auto expected = common;
        expected.emplace_back(value);
        EXPECT_EQ(sides[side].arguments, expected);
    }
    options.versus = "--in-process";
    EXPECT_EQ(make_sides(options)[0].arguments.size(), 4u);
    EXPECT_EQ(make_sides(options)[1].arguments, std::vector<std::string>{"--in-process"});
}

TEST(Compare, RatiosAreOfTheSameRound) {
    Options options;
    options.compare = "x";
    options.rounds = 3;
    std::vector<Side> sides = make_sides(options);
    for (const auto& [a, b] : {std::pair{100., 50.}, std::pair{30., 30.}, std::pair{50., 100.}}) {
        sides[0].rounds.push_back({.output_tokens_per_s = a});
        sides[1].rounds.push_back({.output_tokens_per_s = b});
        sides[0].start_s.push_back(1);
        sides[1].start_s.push_back(1);
    }
    EXPECT_THAT(compare_table(sides, options),
                HasSubstr("output tokens/s, whole run        50.00      50.00   "
                          "1.000 (0.500 ... 2.000)\n"));
    const Json ratio = compare_json(sides, options)["ratio_a_to_b"]["output_tokens_per_s"];
    EXPECT_EQ(ratio["median"], Json(1.0));
    EXPECT_EQ(ratio["min"], Json(0.5));
    EXPECT_EQ(ratio["max"], Json(2.0));
}

}  // namespace
}  // namespace aerie::bench
