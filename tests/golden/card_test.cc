// The demo model on a card: the goldens, the CPU's logits within a bound, and what must not change
// a bit. Skipped where there is no card.
#include "tensor/card.h"

#include <gtest/gtest.h>

#include "model/testing/demo.h"

namespace aerie::model {
namespace {

const std::string kDemo = AERIE_SOURCE_DIR "/models/demo";

class CardGolden : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        if (card::count() == 0) return;
        auto loaded = TestModel::load(
            kDemo, {.compute = DType::kBF16, .keep_fp8 = true, .device = Device::kCuda});
        CHECK(loaded.ok(), "{}", loaded.message());
        model_ = std::move(loaded).value().release();
    }
    static void TearDownTestSuite() {
        delete model_;
        model_ = nullptr;
    }
    void SetUp() override {
        if (model_ == nullptr) GTEST_SKIP() << "no card";
    }
    static std::unique_ptr<TestReplica> replica(const ReplicaOptions& more = {}) {
        ReplicaOptions options = more;
        options.device = Device::kCuda;
        options.tile_rows = options.max_rows;
        auto made = TestReplica::create(*model_, options);
        CHECK(made.ok(), "{}", made.message());
        return std::move(made).value();
    }
    static TestModel* model_;
};
TestModel* CardGolden::model_ = nullptr;

std::vector<GoldenPrompt> goldens(const std::string& file) {
    auto prompts = read_golden_prompts(kDemo + "/golden/" + file);
    CHECK(prompts.ok(), "{}", prompts.message());
    return *std::move(prompts);
}

TEST_F(CardGolden, GivesTheTokens) {
    auto on_card = replica();
    int right = 0, total = 0;
    for (const GoldenPrompt& golden : goldens("golden_greedy.json")) {
        right += count_right(*on_card, golden);
        total += static_cast<int>(golden.output_ids.size());
    }
    EXPECT_EQ(total, 336);
    EXPECT_GE(right, 331);
    std::printf("%d of %d golden tokens\n", right, total);
}

TEST_F(CardGolden, FindsTheLongAnswers) {
    for (const GoldenPrompt& golden : goldens("golden_long.json")) {
        auto on_card = replica({.max_positions = 16384});
        EXPECT_EQ(count_right(*on_card, golden), static_cast<int>(golden.output_ids.size()))
            << golden.prompt_ids.size() << " tokens";
    }
}

// Both round in bfloat16, at other places.
TEST_F(CardGolden, LogitsAreThoseOfTheCpu) {
    const auto tokens = goldens("golden_greedy.json")[0].prompt_ids;
    std::vector<float> on_cpu, on_card;
    auto cpu = TestReplica::create(demo_model(kDemo, DType::kBF16), {});
    ASSERT_TRUE(cpu.ok());
    ASSERT_TRUE((*cpu)->prefill((*cpu)->add_sequence(tokens), 512, true, on_cpu).ok());
    auto made = replica();
    ASSERT_TRUE(made->prefill(made->add_sequence(tokens), 512, true, on_card).ok());
    const std::vector<double> wanted(on_cpu.begin(), on_cpu.end());
    const double difference = relative_difference(on_card, wanted);
    std::printf("logits differ from the CPU's by %.4f\n", difference);
    EXPECT_LT(difference, 0.06);
}

// A prompt in chunks, a token at a time, and beside others: where its rows run changes its bits
// only as far as a kernel is not batch-invariant; the tokens stay.
TEST_F(CardGolden, TokensStayInAnyBatch) {
    const auto prompts = goldens("golden_greedy.json");
    auto on_card = replica({.page_size = 16});
    std::vector<std::vector<int32_t>> outputs(prompts.size());
    std::vector<StepPart> parts;
    for (const GoldenPrompt& golden : prompts) {
        const int sequence = on_card->add_sequence(golden.prompt_ids);
        parts.push_back({sequence, static_cast<int64_t>(golden.prompt_ids.size())});
    }
    int right = 0, total = 0;
    while (!parts.empty()) {
        const Status status = on_card->step(parts);
        ASSERT_TRUE(status.ok()) << status.message();
        const ConstView logits = on_card->logits();
        std::vector<StepPart> next;
        for (size_t i = 0; i < parts.size(); ++i) {
            const int sequence = parts[i].sequence;
            auto& output = outputs[sequence];
            const auto& wanted = prompts[sequence].output_ids;
            const float* row = logits.row_as<float>(static_cast<int64_t>(i));
            output.push_back(static_cast<int32_t>(std::max_element(row, row + logits.cols) - row));
            right += output.back() == wanted[output.size() - 1];
            ++total;
            on_card->append(sequence, wanted[output.size() - 1]);  // fed with the golden prefix
            if (output.size() < wanted.size()) next.push_back({sequence, 1});
        }
        parts = std::move(next);
    }
    EXPECT_EQ(total, 336);
    EXPECT_GE(right, 331);
    std::printf("%d of %d golden tokens in one batch\n", right, total);
}

}  // namespace
}  // namespace aerie::model
