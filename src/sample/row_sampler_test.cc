#include "sample/row_sampler.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace aerie::sample {
namespace {

constexpr int kVocab = 3000, kRows = 200;

// Greedy and drawn, with and without filters and penalties, and a row that has no token to give.
TEST(RowSampler, GivesWhatASamplerGivesAlone) {
    std::mt19937 random(7);
    std::normal_distribution<float> values(0, 3);
    std::vector<std::vector<float>> logits(kRows, std::vector<float>(kVocab));
    std::vector<SamplingParams> params(kRows);
    std::vector<std::vector<int32_t>> outputs(kRows);
    for (int row = 0; row < kRows; ++row) {
        for (float& x : logits[row]) x = values(random);
        params[row].temperature = row % 3 == 0 ? 0 : 0.9;
        params[row].seed = static_cast<uint64_t>(row);
        if (row % 4 == 1) params[row].top_p = 0.8;
        if (row % 5 == 2) params[row].top_k = 20;
        if (row % 6 == 3) params[row].frequency_penalty = 1.5;
        for (int i = 0; i < row % 7; ++i)
            outputs[row].push_back(static_cast<int32_t>(random() % kVocab));
    }
    logits[11].assign(kVocab, std::numeric_limits<float>::quiet_NaN());
    const SamplerOptions options{.vocab_size = kVocab, .num_ids = kVocab - 5, .eos_ids = {1}};
    ThreadPool pool({.num_workers = 3});
    for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
        RowSampler together(options, threads);
        std::vector<Draw> draws;
        for (int row = 0; row < kRows; ++row)
            draws.push_back({.logits = logits[row].data(),
                             .params = &params[row],
                             .output = outputs[row],
                             .position = 10 + row,
                             .token = std::nullopt});
        together.sample(draws);
        Sampler alone(options);
        for (int row = 0; row < kRows; ++row) {
            auto expected =
                alone.sample(logits[row].data(), params[row], outputs[row], 10 + row);
            ASSERT_TRUE(draws[row].token.has_value()) << row;
            ASSERT_EQ(draws[row].token->ok(), expected.ok()) << row;
            EXPECT_EQ(expected.ok(), row != 11);
            if (expected.ok()) {
                EXPECT_EQ(**draws[row].token, *expected) << row;
            } else {
                EXPECT_EQ(draws[row].token->message(), expected.message());
            }
        }
    }
}

TEST(RowSampler, NothingIsFine) {
    RowSampler sampler({.vocab_size = 8, .num_ids = 8, .eos_ids = {}}, nullptr);
    sampler.sample({});
}

}  // namespace
}  // namespace aerie::sample
