// The MTP layer's drafts for the goldens' answers: those of the reference, token for token.
#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "model/testing/demo.h"
#include "sample/sampler.h"

namespace aerie::model {
namespace {

const std::string kDemo = AERIE_SOURCE_DIR "/models/demo";

struct Drafts {
    int right = 0;         // equal to the token that came
    int as_reference = 0;  // equal to the reference's draft
    int total = 0;
};

// Drafts of the token after each token of the answer but the last, made in chunks of 50 rows.
Drafts count_drafts(DType compute, const ReplicaOptions& options) {
    auto prompts = read_golden_prompts(kDemo + "/golden/golden_greedy.json");
    CHECK(prompts.ok(), "{}", prompts.message());
    // [prompt][draft]: argmax of reference.py's mtp()
    auto reference = read_json_file(AERIE_SOURCE_DIR "/tests/golden/mtp_drafts.json");
    CHECK(reference.ok(), "{}", reference.message());
    auto replica = TestReplica::create(demo_model(kDemo, compute), options);
    CHECK(replica.ok(), "{}", replica.message());
    Drafts drafts;
    for (size_t prompt = 0; prompt < prompts->size(); ++prompt) {
        const GoldenPrompt& golden = (*prompts)[prompt];
        std::vector<int32_t> tokens = golden.prompt_ids;
        tokens.insert(tokens.end(), golden.output_ids.begin(), golden.output_ids.end());
        const int sequence = (*replica)->add_sequence(tokens);
        size_t position = 0;
        while (position + 1 < tokens.size()) {
            const auto rows = std::min<int64_t>(50, static_cast<int64_t>(tokens.size() - 1 - position));
            Status status = (*replica)->step({{sequence, rows, true}});
            if (status) status = (*replica)->draft();
            CHECK(status.ok(), "{}", status.message());
            const ConstView logits = (*replica)->logits();
            for (int64_t row = 0; row < rows; ++row, ++position) {
                if (position < golden.prompt_ids.size()) continue;
                const int32_t draft = argmax(logits.row_as<float>(row), logits.cols);
                const size_t index = position - golden.prompt_ids.size();
                drafts.right += draft == tokens[position + 1];
                drafts.as_reference += draft == reference->as_array()[prompt].as_array()[index].as_int();
                ++drafts.total;
            }
        }
    }
    return drafts;
}

TEST(GoldenMtp, Float32DraftsAsTheReference) {
    const Drafts drafts = count_drafts(DType::kF32, {.mtp = true});
    EXPECT_EQ(drafts.total, 320);
    EXPECT_EQ(drafts.as_reference, 320);
    EXPECT_EQ(drafts.right, 316);
}

TEST(GoldenMtp, BFloat16) {
    EXPECT_GE(count_drafts(DType::kBF16, {.mtp = true}).right, 312);
}

TEST(GoldenMtp, Split) {
    const ReplicaOptions options{
        .tp_size = 2, .cp_size = 2, .ep_size = 3, .page_size = 4, .tile_rows = 16, .mtp = true};
    EXPECT_EQ(count_drafts(DType::kF32, options).as_reference, 320);
    EXPECT_GE(count_drafts(DType::kBF16, options).right, 312);
}

// What a step draws of one position over many seeds, with drafts and without, by the model's own
// logits and the MTP layer's: the same token for each seed, spread as the softmax says; and drafts made
// with the same noise are right more often than ones drawn for themselves could be.
TEST(GoldenMtp, DraftsLeaveTheDistributionAsItIs) {
    constexpr int kNumSeeds = 20'000;
    auto prompts = read_golden_prompts(kDemo + "/golden/golden_greedy.json");
    ASSERT_TRUE(prompts.ok());
    auto replica = TestReplica::create(demo_model(kDemo, DType::kF32), {.mtp = true});
    ASSERT_TRUE(replica.ok());
    std::vector<int32_t> tokens = (*prompts)[0].prompt_ids;
    tokens.push_back((*prompts)[0].output_ids[0]);
    const auto rows = static_cast<int64_t>(tokens.size()) - 1;
    ASSERT_TRUE((*replica)->step({{(*replica)->add_sequence(tokens), rows, true}}).ok());
    const auto softmax = [](std::vector<float> x) {
        const float most = *std::max_element(x.begin(), x.end());
        double sum = 0;
        for (float& value : x) sum += value = std::exp(value - most);
        for (float& value : x) value = static_cast<float>(value / sum);
        return x;
    };
    const auto row = [&](int64_t r) {
        const float* logits = (*replica)->logits().row_as<float>(r);
        return std::vector<float>(logits, logits + (*replica)->logits().cols);
    };
    // Where the model is least sure.
    int64_t chosen = 0;
    float least = 1;
    for (int64_t r = 1; r < rows; ++r) {
        const auto p = softmax(row(r));
        const float most = *std::max_element(p.begin(), p.end());
        if (most < least) least = most, chosen = r;
    }
    const std::vector<float> target = row(chosen);
    ASSERT_TRUE((*replica)->draft().ok());
    const std::vector<float> drafted = row(chosen);

    const auto p = softmax(target), q = softmax(drafted);
    const auto vocab_size = static_cast<int>(target.size());
    sample::Sampler sampler({.vocab_size = vocab_size, .num_ids = vocab_size, .eos_ids = {}});
    std::vector<int> counts(target.size());
    int num_accepted = 0;
    for (int seed = 0; seed < kNumSeeds; ++seed) {
        const SamplingParams params{.temperature = 1, .seed = static_cast<uint64_t>(seed)};
        const auto draw = [&](const std::vector<float>& logits) {
            return sampler.sample(logits.data(), params, {}, rows).value();
        };
        const int32_t token = draw(target);
        ++counts[token];
        num_accepted += draw(drafted) == token;
    }
    // Ids that are expected less than five times count as one.
    double chi_square = 0, rare_expected = 0, rare_seen = 0, alike = 0;
    int bins = 0;
    for (int id = 0; id < vocab_size; ++id) {
        const double expected = double{p[id]} * kNumSeeds;
        alike += double{p[id]} * q[id];
        if (expected < 5) {
            rare_expected += expected;
            rare_seen += counts[id];
            continue;
        }
        chi_square += (counts[id] - expected) * (counts[id] - expected) / expected;
        ++bins;
    }
    if (rare_expected >= 5) {
        chi_square += (rare_seen - rare_expected) * (rare_seen - rare_expected) / rare_expected;
        ++bins;
    }
    const double df = bins - 1, h = 2 / (9 * df);
    ASSERT_GE(df, 1);
    EXPECT_LT(chi_square, df * std::pow(1 - h + 4.75 * std::sqrt(h), 3)) << df;  // the 1e-6 quantile
    EXPECT_GT(num_accepted, 1.02 * alike * kNumSeeds) << alike;
}

}  // namespace
}  // namespace aerie::model
