// Masks, as grammars give them.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "sample/sampler.h"

namespace aerie::sample {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> random_row(int n, uint32_t seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> row(n);
    for (float& x : row) x = normal(engine);
    return row;
}

SamplingParams params(double temperature, int top_k = -1, double top_p = 1) {
    SamplingParams p;
    p.temperature = temperature;
    p.top_k = top_k;
    p.top_p = top_p;
    p.seed = 42;
    return p;
}

// Which ids a mask allows, as SamplingParams cannot say it: by a row without the others.
TEST(Mask, AMaskIsAsIfTheRestWereNotThere) {
    constexpr int kIds = 70;  // two words and a bit
    Sampler sampler({.vocab_size = kIds + 3, .num_ids = kIds, .eos_ids = {5}});
    for (int round = 0; round < 200; ++round) {
        const std::vector<float> row = random_row(kIds + 3, round);
        std::mt19937 engine(round);
        std::vector<uint32_t> mask = {static_cast<uint32_t>(engine() & engine()), ~0u,
                                      0x3f & engine()};
        std::vector<float> without = row;
        for (int id = 0; id < kIds; ++id)
            if ((mask[id / 32] >> (id % 32) & 1) == 0) without[id] = -kInf;
        SamplingParams p = params(round % 3 == 0 ? 0 : 1, round % 2 == 0 ? -1 : 5, 0.9);
        p.repetition_penalty = 1.5;
        p.presence_penalty = 0.5;
        const std::vector<int32_t> output = {1, 33, 33, 60};
        ASSERT_EQ(sampler.sample(row.data(), p, output, round, mask).value(),
                  sampler.sample(without.data(), p, output, round).value())
            << "round " << round;
    }
}

TEST(Mask, WhereAMaskLeavesTheEndAloneItComesBeforeItsTime) {
    Sampler sampler({.vocab_size = 40, .num_ids = 40, .eos_ids = {5}});
    const std::vector<float> row = random_row(40, 1);
    SamplingParams p = params(1);
    p.min_new_tokens = 10;
    const std::vector<uint32_t> end_alone = {1u << 5, 0};
    EXPECT_EQ(sampler.sample(row.data(), p, std::vector<int32_t>(2, 1), 3, end_alone).value(), 5);
    const std::vector<uint32_t> end_and_more = {1u << 5 | 1u << 7, 0};
    EXPECT_EQ(sampler.sample(row.data(), p, std::vector<int32_t>(2, 1), 3, end_and_more).value(),
              7);
    EXPECT_FALSE(sampler.sample(row.data(), p, {}, 0, std::vector<uint32_t>{0, 0}).ok());
}

}  // namespace
}  // namespace aerie::sample
