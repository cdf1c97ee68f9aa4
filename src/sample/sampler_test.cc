#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <random>

namespace aerie::sample {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> random_row(int n, uint32_t seed, float spread = 3) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0, spread);
    std::vector<float> row(n);
    for (float& x : row) x = normal(engine);
    return row;
}

SamplingParams params(double temperature, int top_k = -1, double top_p = 1, double min_p = 0) {
    SamplingParams p;
    p.temperature = temperature;
    p.top_k = top_k;
    p.top_p = top_p;
    p.min_p = min_p;
    p.seed = 42;
    return p;
}

// Some tokens that have come before.
std::vector<int32_t> outputs(int count) { return std::vector<int32_t>(count, 1); }

// The kept ids, most probable first, by sorting; nothing where top_p or min_p is so close to a
// border that rounding decides.
std::optional<std::vector<int32_t>> plain_kept(const std::vector<float>& row,
                                               const SamplingParams& p) {
    std::vector<int32_t> ids(row.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return row[a] > row[b]; });
    double sum = 0;
    const auto weight = [&](int32_t id) {
        return std::exp((static_cast<double>(row[id]) - row[ids[0]]) / p.temperature);
    };
    for (const int32_t id : ids) sum += weight(id);
    std::vector<int32_t> kept;
    double before = 0;
    for (const int32_t id : ids) {
        if (p.top_p < 1 && std::abs(before / sum - p.top_p) < 1e-6) return std::nullopt;
        if (p.min_p > 0 && id != ids[0] && std::abs(weight(id) / p.min_p - 1) < 1e-6)
            return std::nullopt;
        const bool in_k = p.top_k <= 0 || static_cast<int>(kept.size()) < p.top_k;
        if (row[id] > -kInf && in_k && (p.top_p >= 1 || before / sum <= p.top_p) &&
            weight(id) >= p.min_p)
            kept.push_back(id);
        before += weight(id);
    }
    return kept;
}

int32_t plain_draw(const std::vector<float>& row, const std::vector<int32_t>& kept,
                   const SamplingParams& p, int64_t position) {
    int32_t winner = -1;
    double best = -kInf;
    for (const int32_t id : kept) {
        const double score = (static_cast<double>(row[id]) - row[kept[0]]) * (1 / p.temperature) +
                             gumbel({p.seed, p.choice, position}, id);
        if (score > best || (score == best && id < winner)) {
            best = score;
            winner = id;
        }
    }
    return winner;
}

TEST(Noise, LiesBetweenItsBounds) {
    EXPECT_GT(noise_uniform(0), 0);
    EXPECT_LT(noise_uniform(~uint64_t{0}), 1);
    EXPECT_EQ(noise_uniform(~uint64_t{0}), 1 - noise_uniform(0));
    double sum = 0, squares = 0;
    constexpr int kDraws = 200000;
    for (int i = 0; i < kDraws; ++i) {
        const double g = gumbel({1, 0, i / 100}, i % 100);
        sum += g;
        squares += g * g;
    }
    const double mean = sum / kDraws;
    EXPECT_NEAR(mean, 0.5772, 0.01);                            // Euler's constant
    EXPECT_NEAR(squares / kDraws - mean * mean, 1.6449, 0.03);  // π²/6
}

TEST(Noise, EveryPartOfTheKeyMatters) {
    const double g = gumbel({1, 2, 3}, 4);
    EXPECT_EQ(g, gumbel({1, 2, 3}, 4));
    EXPECT_NE(g, gumbel({2, 2, 3}, 4));
    EXPECT_NE(g, gumbel({1, 3, 3}, 4));
    EXPECT_NE(g, gumbel({1, 2, 4}, 4));
    EXPECT_NE(g, gumbel({1, 2, 3}, 5));
    EXPECT_NE(gumbel({0, 0, 1}, 0), gumbel({0, 1, 0}, 0));
    EXPECT_NE(gumbel({0, 0, 1}, 0), gumbel({1, 0, 0}, 0));
}

// The quick paths (race, partial selection) give exactly what sorting and full evaluation give.
TEST(Sampler, EqualsThePlainDefinition) {
    int compared = 0;
    for (const int n : {1, 7, 60, 3000, 20000}) {
        Sampler sampler({.vocab_size = n, .num_ids = n, .eos_ids = {}});
        for (uint32_t seed = 0; seed < 12; ++seed) {
            std::vector<float> row = random_row(n, seed, seed % 3 == 0 ? 0.3f : 4.0f);
            if (seed % 4 == 1)
                for (float& x : row) x = std::round(x);  // many equal logits
            if (seed % 4 == 2)
                for (int i = 0; i + 1 < n; i += 2) row[i] = -kInf;
            for (const SamplingParams& p :
                 {params(1), params(0.3), params(5), params(1, 5), params(1, 700),
                  params(0.7, -1, 0.9), params(2, -1, 0.999), params(1, -1, 1e-9),
                  params(1, -1, 1, 0.05), params(1, -1, 1, 1), params(1.5, 40, 0.8),
                  params(1.5, 300, 0.95, 0.01), params(1, n - 1, 0.5), params(1e-3)}) {
                const auto kept = plain_kept(row, p);
                if (!kept) continue;
                for (int64_t position = 0; position < 3; ++position) {
                    const Result<int32_t> token = sampler.sample(row.data(), p, {}, position);
                    ASSERT_TRUE(token.ok());
                    ASSERT_EQ(token.value(), plain_draw(row, *kept, p, position))
                        << "n " << n << " seed " << seed << " T " << p.temperature << " k "
                        << p.top_k << " p " << p.top_p << " min_p " << p.min_p;
                    ++compared;
                }
            }
        }
    }
    EXPECT_GT(compared, 2000);
}

// Draws over many seeds follow the distribution: chi-square below the 1e-6 quantile
// (Wilson–Hilferty).
TEST(Sampler, FollowsTheDistribution) {
    constexpr int kIds = 40, kDraws = 60000;
    const std::vector<float> row = random_row(kIds, 3, 1.5);
    Sampler sampler({.vocab_size = kIds, .num_ids = kIds, .eos_ids = {}});
    for (SamplingParams p : {params(1), params(0.6), params(2, 10), params(1, -1, 0.8),
                             params(1, -1, 1, 0.2), params(1.2, 25, 0.9, 0.05)}) {
        const std::vector<int32_t> kept = plain_kept(row, p).value();
        std::vector<double> expected(kIds, 0);
        double sum = 0;
        for (const int32_t id : kept) sum += expected[id] = std::exp(row[id] / p.temperature);
        std::vector<int> counts(kIds, 0);
        for (int i = 0; i < kDraws; ++i) {
            p.seed = i % 100;
            p.choice = i / 100 % 4;
            ++counts[sampler.sample(row.data(), p, {}, i / 400).value()];
        }
        double chi_square = 0;
        for (int id = 0; id < kIds; ++id) {
            const double e = expected[id] / sum * kDraws;
            if (e == 0)
                EXPECT_EQ(counts[id], 0) << id;
            else
                chi_square += (counts[id] - e) * (counts[id] - e) / e;
        }
        const double df = std::max<double>(static_cast<double>(kept.size()) - 1, 1);
        const double h = 2 / (9 * df);
        EXPECT_LT(chi_square, df * std::pow(1 - h + 4.75 * std::sqrt(h), 3)) << p.temperature;
    }
}

TEST(Sampler, GreedyTakesTheLowestOfEqualIds) {
    Sampler sampler({.vocab_size = 6, .num_ids = 6, .eos_ids = {}});
    const std::vector<float> row = {1, 3, 2, 3, -kInf, 3};
    for (const SamplingParams& p :
         {params(0), params(1e-9), params(1, 1), params(-1), params(std::nan(""))})
        EXPECT_EQ(sampler.sample(row.data(), p, {}, 0).value(), 1);
    const std::vector<float> zeros = {-1, -0.0f, 0.0f, -0.0f, 0.0f, -1};
    EXPECT_EQ(sampler.sample(zeros.data(), params(0), {}, 0).value(), 1);
    const std::vector<float> negative = {-5, -4, -3, -3, -9, -4};
    EXPECT_EQ(sampler.sample(negative.data(), params(0), {}, 0).value(), 2);
}

TEST(Sampler, DoesNotDependOnTheBatch) {
    constexpr int kIds = 5000;
    Sampler alone({.vocab_size = kIds, .num_ids = kIds, .eos_ids = {}});
    Sampler shared({.vocab_size = kIds, .num_ids = kIds, .eos_ids = {}});
    const std::vector<float> row = random_row(kIds, 1), other = random_row(kIds, 2, 9);
    const SamplingParams p = params(1, 50, 0.95);
    for (int position = 0; position < 20; ++position) {
        const int32_t expected = alone.sample(row.data(), p, outputs(position), position).value();
        (void)shared.sample(other.data(), params(2), {}, position);
        (void)shared.sample(other.data(), params(1, -1, 0.5), {}, position);
        EXPECT_EQ(shared.sample(row.data(), p, outputs(position), position).value(), expected);
    }
}

// The noise belongs to the id: a filter that keeps the winner does not change the draw.
TEST(Sampler, FiltersDoNotMoveTheNoise) {
    constexpr int kIds = 300;
    Sampler sampler({.vocab_size = kIds, .num_ids = kIds, .eos_ids = {}});
    const std::vector<float> row = random_row(kIds, 5, 2);
    const std::vector<int32_t> kept = plain_kept(row, params(1, 20)).value();
    int same = 0;
    for (int position = 0; position < 200; ++position) {
        const int32_t whole = sampler.sample(row.data(), params(1), {}, position).value();
        if (std::find(kept.begin(), kept.end(), whole) == kept.end()) continue;
        EXPECT_EQ(sampler.sample(row.data(), params(1, 20), {}, position).value(), whole);
        ++same;
    }
    EXPECT_GT(same, 50);
}

// With the same key two distributions at total variation d agree with probability at least
// (1 - d) / (1 + d): what a draft gains from drawing with the check's noise.
TEST(Sampler, DraftAndCheckAgree) {
    constexpr int kIds = 500, kDraws = 4000;
    Sampler sampler({.vocab_size = kIds, .num_ids = kIds, .eos_ids = {}});
    const std::vector<float> target = random_row(kIds, 5, 2);
    std::vector<float> draft = target;
    const std::vector<float> noise = random_row(kIds, 6, 0.3);
    for (int i = 0; i < kIds; ++i) draft[i] += noise[i];
    double target_sum = 0, draft_sum = 0, distance = 0;
    for (int i = 0; i < kIds; ++i) {
        target_sum += std::exp(target[i]);
        draft_sum += std::exp(draft[i]);
    }
    for (int i = 0; i < kIds; ++i)
        distance += std::abs(std::exp(target[i]) / target_sum - std::exp(draft[i]) / draft_sum) / 2;
    int agreed = 0;
    for (int position = 0; position < kDraws; ++position)
        agreed += sampler.sample(target.data(), params(1), {}, position).value() ==
                  sampler.sample(draft.data(), params(1), {}, position).value();
    EXPECT_GT(agreed, kDraws * ((1 - distance) / (1 + distance) - 0.03));
    EXPECT_LT(agreed, kDraws);
}

TEST(Sampler, IdsBeyondTheTokenizerAreNeverSampled) {
    Sampler sampler({.vocab_size = 8, .num_ids = 5, .eos_ids = {}});
    const std::vector<float> row = {0, 1, 0, 1, 0, 100, kInf, std::nanf("")};
    EXPECT_EQ(sampler.sample(row.data(), params(0), {}, 0).value(), 1);
    for (const SamplingParams& p : {params(1), params(3, 4), params(3, -1, 0.9)})
        for (int position = 0; position < 100; ++position)
            EXPECT_LT(sampler.sample(row.data(), p, {}, position).value(), 5);
}

TEST(Sampler, EndsWaitForMinNewTokens) {
    Sampler sampler({.vocab_size = 6, .num_ids = 6, .eos_ids = {2, 77}});
    const std::vector<float> row = {0, 1, 50, 40, 2, 1};
    SamplingParams p = params(0);
    p.min_new_tokens = 3;
    p.stop_token_ids = {3, -1};
    EXPECT_EQ(sampler.sample(row.data(), p, outputs(2), 9).value(), 4);
    EXPECT_EQ(sampler.sample(row.data(), p, outputs(3), 9).value(), 2);
    p.temperature = 1;
    for (int position = 0; position < 100; ++position) {
        const int32_t token = sampler.sample(row.data(), p, {}, position).value();
        EXPECT_TRUE(token != 2 && token != 3) << token;
    }
}

// The rule of sampler.h, word by word, and then the sampler on the logits that it gives.
TEST(Sampler, PenaltiesAndBiasEqualThePlainRule) {
    constexpr int kIds = 40;
    Sampler sampler({.vocab_size = kIds, .num_ids = kIds, .eos_ids = {}});
    std::mt19937 random(5);
    for (int round = 0; round < 2000; ++round) {
        const std::vector<float> row = random_row(kIds, round);
        std::vector<int32_t> output(random() % 30);
        for (int32_t& id : output) id = static_cast<int32_t>(random() % 12);
        SamplingParams p = params(round % 3 == 0 ? 0 : 1);
        if (round % 2) p.frequency_penalty = static_cast<double>(random() % 401) / 100 - 2;
        if (round % 5) p.presence_penalty = static_cast<double>(random() % 401) / 100 - 2;
        if (round % 7) p.repetition_penalty = 0.1 + static_cast<double>(random() % 190) / 100;
        if (round % 4 == 0) p.logit_bias = {{3, 2.5f}, {20, -100}, {39, 0.5f}, {1000, 5}};
        std::vector<float> plain = row;
        for (int id = 0; id < kIds; ++id) {
            const auto count = std::count(output.begin(), output.end(), id);
            if (count == 0) continue;
            double x = plain[id];
            x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
            plain[id] = static_cast<float>(
                x - (static_cast<double>(count) * p.frequency_penalty + p.presence_penalty));
        }
        for (const LogitBias& bias : p.logit_bias)
            if (bias.id < kIds) plain[bias.id] += bias.bias;
        SamplingParams without = params(p.temperature);
        ASSERT_EQ(sampler.sample(row.data(), p, output, round).value(),
                  sampler.sample(plain.data(), without, {}, round).value())
            << "round " << round;
    }
}

TEST(Sampler, LogprobsAreTheModelsOwn) {
    constexpr int kIds = 500;
    Sampler sampler({.vocab_size = kIds + 4, .num_ids = kIds, .eos_ids = {}});
    for (int round = 0; round < 50; ++round) {
        std::vector<float> row = random_row(kIds + 4, round);
        row[7] = row[9] = 20;  // equal: in the order of their ids
        row[11] = -kInf;
        SamplingParams p = params(0.3, 5);
        p.frequency_penalty = 1;  // plays no part
        p.num_top_logprobs = round % 6;
        p.logprob_ids = {4, 11, kIds};
        double sum = 0;
        for (int id = 0; id < kIds; ++id) sum += std::exp(static_cast<double>(row[id]));
        const auto plain = [&](int id) { return row[id] - std::log(sum); };
        const TokenLogprobs logprobs = sampler.logprobs(row.data(), p, 3);
        EXPECT_NEAR(logprobs.logprob, plain(3), 1e-5);
        std::vector<int> ids(kIds);
        std::iota(ids.begin(), ids.end(), 0);
        std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return row[a] > row[b]; });
        ASSERT_EQ(logprobs.top.size(), static_cast<size_t>(p.num_top_logprobs));
        for (size_t i = 0; i < logprobs.top.size(); ++i) {
            EXPECT_EQ(logprobs.top[i].id, ids[i]);
            EXPECT_NEAR(logprobs.top[i].logprob, plain(ids[i]), 1e-5);
        }
        ASSERT_EQ(logprobs.asked.size(), 3u);
        EXPECT_NEAR(logprobs.asked[0], plain(4), 1e-5);
        EXPECT_EQ(logprobs.asked[1], -kInf);
        EXPECT_EQ(logprobs.asked[2], -kInf);
    }
}

TEST(Sampler, BadLogitsAreErrors) {
    Sampler sampler({.vocab_size = 4, .num_ids = 4, .eos_ids = {}});
    const float nan = std::nanf("");
    struct Case {
        std::vector<float> row;
        const char* message;
    };
    for (const Case& c :
         {Case{{0, nan, 1, 2}, "token 1 is nan"}, Case{{0, 1, 2, -nan}, "token 3 is"},
          Case{{kInf, 1, 2, 3}, "token 0 is inf"},
          Case{{-kInf, -kInf, -kInf, -kInf}, "no token is left"}}) {
        for (const SamplingParams& p : {params(0), params(1), params(1, 2, 0.5, 0.1)}) {
            const Result<int32_t> token = sampler.sample(c.row.data(), p, {}, 0);
            ASSERT_FALSE(token.ok()) << c.message;
            EXPECT_NE(token.message().find(c.message), std::string::npos) << token.message();
        }
    }
    const std::vector<float> one = {-kInf, -kInf, -3, -kInf};
    for (const SamplingParams& p : {params(0), params(1), params(1, 2, 0.5, 0.1)})
        EXPECT_EQ(sampler.sample(one.data(), p, {}, 0).value(), 2);
}

TEST(Sampler, ExtremeTemperatures) {
    constexpr int kIds = 1000;
    Sampler sampler({.vocab_size = kIds, .num_ids = kIds, .eos_ids = {}});
    std::vector<float> row = random_row(kIds, 8);
    row[17] = 3e38f;
    row[18] = -3e38f;
    EXPECT_EQ(sampler.sample(row.data(), params(2e-6), {}, 0).value(), 17);
    EXPECT_EQ(sampler.sample(row.data(), params(1, -1, 0.9), {}, 0).value(), 17);
    row = random_row(kIds, 8);
    std::vector<int> counts(kIds, 0);  // uniform when very hot
    for (int position = 0; position < 20000; ++position)
        ++counts[sampler.sample(row.data(), params(1e9), {}, position).value()];
    EXPECT_GT(*std::min_element(counts.begin(), counts.end()), 0);
    EXPECT_LT(*std::max_element(counts.begin(), counts.end()), 60);
}

TEST(HashLogits, SeesEveryBit) {
    std::vector<float> row = random_row(1001, 1);
    const uint64_t hash = hash_logits(row.data(), 1001);
    EXPECT_EQ(hash, hash_logits(row.data(), 1001));
    for (const int i : {0, 1, 500, 999, 1000}) {
        const float kept = row[i];
        row[i] = std::nextafter(kept, 100.0f);
        EXPECT_NE(hash, hash_logits(row.data(), 1001)) << i;
        row[i] = kept;
    }
    EXPECT_NE(hash, hash_logits(row.data(), 1000));
}

}  // namespace
}  // namespace aerie::sample
