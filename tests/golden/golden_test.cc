#include "model/testing/demo.h"

namespace aerie::model {
namespace {

const std::string kDemo = AERIE_SOURCE_DIR "/models/demo";

std::vector<GoldenPrompt> goldens() {
    auto prompts = read_golden_prompts(kDemo + "/golden/golden_greedy.json");
    CHECK(prompts.ok(), "{}", prompts.message());
    return *std::move(prompts);
}

std::vector<double> golden_tensor(const std::string& name) {
    auto tensor = read_golden_tensor(kDemo + "/golden/golden_logits.safetensors", name);
    CHECK(tensor.ok(), "{}", tensor.message());
    return *std::move(tensor);
}

std::unique_ptr<TestReplica> demo_replica(DType compute, const ReplicaOptions& options) {
    auto replica = TestReplica::create(demo_model(kDemo, compute), options);
    CHECK(replica.ok(), "{}", replica.message());
    return *std::move(replica);
}

std::vector<float> first_golden_logits(TestReplica& replica) {
    const auto ids = golden_tensor("input_ids");
    std::vector<float> logits;
    const Status status =
        replica.prefill(replica.add_sequence({ids.begin(), ids.end()}), 512, true, logits);
    CHECK(status.ok(), "{}", status.message());
    return logits;
}

struct Total {
    int right = 0;
    int tokens = 0;
};
Total count_all(TestReplica& replica) {
    Total total;
    for (const GoldenPrompt& golden : goldens()) {
        total.right += count_right(replica, golden);
        total.tokens += static_cast<int>(golden.output_ids.size());
    }
    return total;
}

TEST(Golden, Float32GivesTheLogitsAndEveryToken) {
    auto replica = demo_replica(DType::kF32, {});
    EXPECT_LT(relative_difference(first_golden_logits(*replica), golden_tensor("logits")), 1e-5);
    const Total total = count_all(*replica);
    EXPECT_EQ(total.tokens, 336);
    EXPECT_EQ(total.right, 336);
}

TEST(Golden, BFloat16GivesTheTokens) {
    auto replica = demo_replica(DType::kBF16, {});
    EXPECT_LT(relative_difference(first_golden_logits(*replica), golden_tensor("logits")), 0.03);
    EXPECT_GE(count_all(*replica).right, 334);
}

// Prefill that is not absorbed (enable_deterministic_inference = false) rounds otherwise, not worse.
TEST(Golden, ExpandedPrefillAgrees) {
    auto exact = demo_replica(DType::kF32, {.expand = true});
    EXPECT_LT(relative_difference(first_golden_logits(*exact), golden_tensor("logits")), 1e-4);
    EXPECT_NE(logits_hash(*exact, {1, 2, 3}, 512),
              logits_hash(*demo_replica(DType::kF32, {}), {1, 2, 3}, 512));
    auto rounded = demo_replica(DType::kBF16, {.expand = true});
    EXPECT_LT(relative_difference(first_golden_logits(*rounded), golden_tensor("logits")), 0.03);
    EXPECT_GE(count_all(*rounded).right, 334);
}

// Sixteen prompts generate together, each step one token of each that goes on, in two microbatches.
TEST(Golden, GreedyGenerationInOneBatch) {
    auto replica = demo_replica(DType::kF32, {});
    const auto prompts = goldens();
    std::vector<std::vector<int32_t>> outputs(prompts.size());
    std::vector<StepPart> parts;
    for (const GoldenPrompt& golden : prompts) {
        const int sequence = replica->add_sequence(golden.prompt_ids);
        parts.push_back({sequence, static_cast<int64_t>(golden.prompt_ids.size())});
    }
    while (!parts.empty()) {
        const auto cut = static_cast<int64_t>(parts.size() / 2);
        const Status status = replica->step(parts, {cut});
        ASSERT_TRUE(status.ok()) << status.message();
        const ConstView logits = replica->logits();
        std::vector<StepPart> next;
        for (size_t i = 0; i < parts.size(); ++i) {
            const int sequence = parts[i].sequence;
            const int32_t token = argmax(logits.row_as<float>(static_cast<int64_t>(i)), logits.cols);
            outputs[sequence].push_back(token);
            replica->append(sequence, token);
            if (outputs[sequence].size() < prompts[sequence].output_ids.size())
                next.push_back({sequence, 1});
        }
        parts = std::move(next);
    }
    for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(outputs[i], prompts[i].output_ids) << i;
}

// Four texts with a fact to find; the answer stands in one of many pages.
void expect_long_answers(DType compute, const ReplicaOptions& options) {
    auto prompts = read_golden_prompts(kDemo + "/golden/golden_long.json");
    ASSERT_TRUE(prompts.ok()) << prompts.message();
    ASSERT_EQ(prompts->size(), 4u);
    for (const GoldenPrompt& golden : *prompts) {
        auto replica = demo_replica(compute, options);
        EXPECT_EQ(count_right(*replica, golden), static_cast<int>(golden.output_ids.size()))
            << golden.prompt_ids.size() << " tokens";
    }
}

TEST(GoldenLong, Float32) { expect_long_answers(DType::kF32, {.num_threads = 2}); }
TEST(GoldenLong, BFloat16) { expect_long_answers(DType::kBF16, {}); }
TEST(GoldenLong, BFloat16Expanded) {
    expect_long_answers(DType::kBF16, {.tile_rows = 1024, .expand = true});
}
TEST(GoldenLong, BFloat16Split) {
    expect_long_answers(DType::kBF16, {.tp_size = 2, .cp_size = 2, .ep_size = 2});
}

struct Split {
    int tp, cp, ep;
};
class GoldenSplit : public testing::TestWithParam<Split> {};

TEST_P(GoldenSplit, AgreesWithTheGoldens) {
    const auto [tp, cp, ep] = GetParam();
    // Small pages and tiles, so that short prompts already stand in several of each.
    const ReplicaOptions options{
        .tp_size = tp, .cp_size = cp, .ep_size = ep, .page_size = 4, .tile_rows = 16};
    auto exact = demo_replica(DType::kF32, options);
    EXPECT_LT(relative_difference(first_golden_logits(*exact), golden_tensor("logits")), 1e-4);
    auto rounded = demo_replica(DType::kBF16, options);
    EXPECT_GE(count_all(*rounded).right, 330);  // 98 %
    ReplicaOptions expanding = options;
    expanding.expand = true;
    auto expanded = demo_replica(DType::kF32, expanding);
    EXPECT_LT(relative_difference(first_golden_logits(*expanded), golden_tensor("logits")), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(, GoldenSplit,
                         testing::Values(Split{1, 2, 1}, Split{2, 1, 2}, Split{4, 1, 4},
                                         Split{2, 2, 3}, Split{4, 2, 1}),
                         [](const auto& info) {
                             return fmt::format("tp{}cp{}ep{}", info.param.tp, info.param.cp,
                                                info.param.ep);
                         });

}  // namespace
}  // namespace aerie::model
