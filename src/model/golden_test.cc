#include "model/testing/golden.h"

#include "model/testing/replica.h"

namespace aerie::model {
namespace {

const std::string kDemo = AERIE_SOURCE_DIR "/models/demo";

TestModel& demo(DType compute) {
    static std::map<DType, std::unique_ptr<TestModel>> models;
    auto& model = models[compute];
    if (!model) {
        auto loaded = TestModel::load(kDemo, {.compute = compute});
        CHECK(loaded.ok(), "{}", loaded.message());
        model = *std::move(loaded);
    }
    return *model;
}

std::vector<GoldenPrompt> goldens() {
    auto prompts = read_golden_prompts(kDemo + "/golden/golden_greedy.json");
    CHECK(prompts.ok(), "{}", prompts.message());
    return *std::move(prompts);
}

// Tokens that are right when each is computed from the golden tokens before it.
int count_right(TestReplica& replica, const GoldenPrompt& golden, std::vector<float>* logits) {
    std::vector<int32_t> tokens = golden.prompt_ids;
    tokens.insert(tokens.end(), golden.output_ids.begin(), golden.output_ids.end());
    std::vector<float> all;
    const Status status = replica.prefill(replica.add_sequence(tokens), 512, true, all);
    CHECK(status.ok(), "{}", status.message());
    const auto vocab = static_cast<int64_t>(all.size() / tokens.size());
    int right = 0;
    for (size_t i = 0; i < golden.output_ids.size(); ++i) {
        const size_t row = golden.prompt_ids.size() + i - 1;
        right += argmax(&all[row * static_cast<size_t>(vocab)], vocab) == golden.output_ids[i];
    }
    if (logits != nullptr) *logits = std::move(all);
    return right;
}

TEST(Golden, Float32GivesTheLogitsAndEveryToken) {
    auto replica = TestReplica::create(demo(DType::kF32), {});
    ASSERT_TRUE(replica.ok()) << replica.message();
    auto ids = read_golden_tensor(kDemo + "/golden/golden_logits.safetensors", "input_ids");
    auto expected = read_golden_tensor(kDemo + "/golden/golden_logits.safetensors", "logits");
    ASSERT_TRUE(ids.ok() && expected.ok());
    std::vector<float> logits;
    const int sequence = (*replica)->add_sequence({ids->begin(), ids->end()});
    ASSERT_TRUE((*replica)->prefill(sequence, 512, true, logits).ok());
    EXPECT_LT(relative_difference(logits, *expected), 1e-5);
    for (const GoldenPrompt& golden : goldens()) {
        EXPECT_EQ(count_right(**replica, golden, nullptr),
                  static_cast<int>(golden.output_ids.size()));
    }
}

}  // namespace
}  // namespace aerie::model
