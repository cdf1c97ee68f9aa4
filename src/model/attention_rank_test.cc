// A short look at everything; tests/golden holds the full tables.
#include "model/attention_rank.h"

#include "config/card_memory.h"
#include "model/testing/demo.h"

namespace aerie::model {
namespace {

using testing::HasSubstr;

const std::string kDemo = AERIE_SOURCE_DIR "/models/demo";

std::unique_ptr<TestReplica> demo_replica(DType compute, const ReplicaOptions& options) {
    auto replica = TestReplica::create(demo_model(kDemo, compute), options);
    CHECK(replica.ok(), "{}", replica.message());
    return *std::move(replica);
}

std::vector<int32_t> text(size_t num_tokens) {
    auto prompts = read_golden_prompts(kDemo + "/golden/golden_long.json");
    CHECK(prompts.ok(), "{}", prompts.message());
    const auto& tokens = (*prompts)[0].prompt_ids;
    return {tokens.begin(), tokens.begin() + static_cast<int64_t>(num_tokens)};
}

TEST(AttentionRank, GivesTheGoldenLogitsInEverySplit) {
    const std::string path = kDemo + "/golden/golden_logits.safetensors";
    auto ids = read_golden_tensor(path, "input_ids");
    auto expected = read_golden_tensor(path, "logits");
    ASSERT_TRUE(ids.ok() && expected.ok());
    for (const auto& [tp, cp] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
        auto replica = demo_replica(
            DType::kF32, {.tp_size = tp, .cp_size = cp, .ep_size = tp, .page_size = 8});
        std::vector<float> logits;
        const int sequence = replica->add_sequence({ids->begin(), ids->end()});
        ASSERT_TRUE(replica->prefill(sequence, 512, true, logits).ok());
        EXPECT_LT(relative_difference(logits, *expected), tp * cp == 1 ? 1e-5 : 1e-4)
            << "tp " << tp << " cp " << cp;
    }
}

TEST(AttentionRank, GivesGoldenTokensInBFloat16) {
    auto replica = demo_replica(DType::kBF16, {});
    auto prompts = read_golden_prompts(kDemo + "/golden/golden_greedy.json");
    ASSERT_TRUE(prompts.ok());
    int right = 0, tokens = 0;
    for (const GoldenPrompt& golden : *prompts) {
        right += count_right(*replica, golden);
        tokens += static_cast<int>(golden.output_ids.size());
    }
    EXPECT_EQ(tokens, 336);
    EXPECT_GE(right, 334);
}

TEST(AttentionRank, WaysToComputeAPromptGiveTheSameBits) {
    const auto tokens = text(100);
    auto replica = demo_replica(DType::kBF16, {});
    const uint64_t whole = logits_hash(*replica, tokens, 512);
    EXPECT_EQ(logits_hash(*replica, tokens, 33), whole);
    EXPECT_EQ(logits_hash(*replica, tokens, 512, {10, 64}), whole);
    EXPECT_EQ(logits_hash(*demo_replica(DType::kBF16, {.page_size = 16, .tile_rows = 24}), tokens, 50),
              whole);
    replica->experts(0).drop_expert(3, 7);
    EXPECT_NE(logits_hash(*replica, tokens, 512), whole);
}

// Chunks of a prompt that are expanded, chunks that are too short for it, and decode rows beside
// them, in one step or several: all within rounding of the absorbed form.
TEST(AttentionRank, ExpandedAndAbsorbedPartsOfAStepAgreeWithTheAbsorbedForm) {
    const auto tokens = text(400);
    std::vector<float> expected;
    auto absorbed = demo_replica(DType::kF32, {});
    ASSERT_TRUE(absorbed->prefill(absorbed->add_sequence(tokens), 512, true, expected).ok());
    const std::vector<double> wanted(expected.begin(), expected.end());
    const auto vocab = static_cast<int64_t>(expected.size() / tokens.size());
    for (const auto& [tp, cp, page, tile] :
         {std::tuple{1, 1, 64, 512}, {2, 1, 16, 90}, {1, 2, 8, 512}, {2, 2, 16, 200}}) {
        auto replica = demo_replica(DType::kF32, {.tp_size = tp,
                                                  .cp_size = cp,
                                                  .page_size = page,
                                                  .tile_rows = tile,
                                                  .expand = true});
        for (const auto& [chunk, cuts] :
             {std::pair{int64_t{512}, std::vector<int64_t>{}}, {190, {}}, {250, {9}}, {7, {}}}) {
            std::vector<float> logits;
            ASSERT_TRUE(
                replica->prefill(replica->add_sequence(tokens), chunk, true, logits, cuts).ok());
            EXPECT_LT(relative_difference(logits, wanted), 1e-4)
                << "tp " << tp << " cp " << cp << " chunk " << chunk;
        }
        const int prompt = replica->add_sequence(tokens), other = replica->add_sequence(tokens);
        ASSERT_TRUE(replica->step({{other, 100}}).ok());
        ASSERT_TRUE(replica->step({{prompt, 399, true}, {other, 1, true}}).ok());
        const ConstView rows = replica->logits();
        const auto* values = rows.row_as<float>(0);
        EXPECT_LT(relative_difference({values, values + 399 * vocab},
                                      {wanted.begin(), wanted.begin() + 399 * vocab}),
                  1e-4);
        EXPECT_LT(relative_difference({values + 399 * vocab, values + 400 * vocab},
                                      {wanted.begin() + 100 * vocab, wanted.begin() + 101 * vocab}),
                  1e-4);
    }
}

// Remembers what it was told.
class Recorder : public LayerObserver {
  public:
    void layer_done(int layer, int microbatch) override { done.emplace_back(layer, microbatch); }
    void attention_time(int layer, int microbatch, double seconds) override {
        timed.emplace_back(layer, microbatch);
        EXPECT_GT(seconds, 0);
    }
    std::vector<std::pair<int, int>> done, timed;
};

TEST(AttentionRank, TellsOfEachLayerAndMicrobatch) {
    auto replica = demo_replica(DType::kBF16, {.tp_size = 2});
    Recorder recorders[2];
    for (int i = 0; i < 2; ++i) replica->set_observer(i, &recorders[i]);
    ASSERT_TRUE(replica->step({{replica->add_sequence(text(20)), 20}}, {10}).ok());
    std::vector<std::pair<int, int>> expected;
    for (int layer = 0; layer < 6; ++layer) {
        expected.emplace_back(layer, 0);
        expected.emplace_back(layer, 1);
    }
    for (const Recorder& recorder : recorders) {
        EXPECT_EQ(recorder.done, expected);
        EXPECT_EQ(recorder.timed, expected);
    }
}

TEST(AttentionRank, AFailedDispatchEndsTheStepOfAllRanksAndTheNextStepIsRight) {
    auto replica = demo_replica(DType::kBF16, {.tp_size = 2, .ep_size = 2});
    const uint64_t right = logits_hash(*replica, text(30), 512);
    const int sequence = replica->add_sequence(text(30));
    replica->experts(1).fail_dispatch(3);
    const Status failed = replica->step({{sequence, 30}}, {15});
    ASSERT_FALSE(failed.ok());
    EXPECT_THAT(failed.message(), HasSubstr("planted failure"));
    replica->group().reset();
    EXPECT_EQ(logits_hash(*replica, text(30), 512), right);
}

TEST(AttentionRank, FewerRowsThanRanks) {
    const auto tokens = text(3);
    std::vector<float> expected, logits;
    auto alone = demo_replica(DType::kF32, {});
    ASSERT_TRUE(alone->prefill(alone->add_sequence(tokens), 512, true, expected).ok());
    auto replica = demo_replica(DType::kF32, {.tp_size = 2, .cp_size = 2, .page_size = 2});
    ASSERT_TRUE(replica->prefill(replica->add_sequence(tokens), 1, true, logits).ok());
    EXPECT_LT(relative_difference(logits, {expected.begin(), expected.end()}), 1e-4);
}

TEST(AttentionRank, WrongInputsAreErrors) {
    auto replica = demo_replica(DType::kBF16, {.max_rows = 8, .max_logits_rows = 2});
    const std::vector<int32_t> blocks = {0, 1}, outside = {1 << 20};
    const std::vector<std::span<const int32_t>> tables = {blocks}, far = {outside};
    struct Case {
        const char* message;
        std::vector<int32_t> tokens;
        std::vector<SequenceSlice> sequences;
        std::vector<int64_t> begins;
        std::vector<int32_t> logits_rows;
    };
    const std::vector<Case> cases = {
        {"0 rows, expected 1 to 8", {}, {}, {0}, {}},
        {"9 rows, expected 1 to 8", std::vector<int32_t>(9), {{0, 9, 0, tables}}, {0}, {}},
        {"token 8192, expected 0 to 8191", {8192}, {{0, 1, 0, tables}}, {0}, {}},
        {"token -1", {-1}, {{0, 1, 0, tables}}, {0}, {}},
        {"from row 1, expected at least one from row 0", {1}, {{1, 1, 0, tables}}, {0}, {}},
        {"sequences have 1 rows of 2", {1, 2}, {{0, 1, 0, tables}}, {0}, {}},
        {"0 block tables, expected 1", {1}, {{0, 1, 0, {}}}, {0}, {}},
        {"has 2 blocks, 200 positions need 4", {1}, {{0, 1, 199, tables}}, {0}, {}},
        {"block 1048576, expected 0 to", {1}, {{0, 1, 0, far}}, {0}, {}},
        {"positions 16384 to 16384, expected 0 to 16383", {1}, {{0, 1, 16384, tables}}, {0}, {}},
        {"positions -1 to -1", {1}, {{0, 1, -1, tables}}, {0}, {}},
        {"0 microbatches, expected 1 to 3", {1}, {{0, 1, 0, tables}}, {}, {}},
        {"microbatch 1 has rows 1 to 0", {1}, {{0, 1, 0, tables}}, {0, 1}, {}},
        {"3 rows of logits, expected at most 2", {1}, {{0, 1, 0, tables}}, {0}, {0, 0, 0}},
        {"logits of row 1 of 1", {1}, {{0, 1, 0, tables}}, {0}, {1}},
    };
    for (const Case& c : cases) {
        const Status status = replica->rank(0).forward({.tokens = c.tokens,
                                                        .sequences = c.sequences,
                                                        .microbatch_begin = c.begins,
                                                        .logits_rows = c.logits_rows},
                                                       nullptr);
        ASSERT_FALSE(status.ok()) << c.message;
        EXPECT_THAT(status.message(), HasSubstr(c.message));
    }
}

// A CPU's buffers are those that a card has but for what is added to the residual, which is float32
// here.
TEST(AttentionRank, HasTheBuffersThatAreMadeRoomForOnACard) {
    constexpr int64_t kRows = 1 << 16;
    for (const auto& [tp, cp] : {std::pair{1, 1}, {2, 2}}) {
        auto replica = demo_replica(DType::kBF16, {.tp_size = tp,
                                                   .cp_size = cp,
                                                   .max_rows = kRows,
                                                   .tile_rows = kRows,
                                                   .max_logits_rows = 1024});
        const ModelConfig& config = demo_model(kDemo, DType::kBF16).config;
        const int64_t own = kRows / (tp * cp), share = kRows / cp;
        const int64_t wider = (own + share) * config.hidden_size * 2;
        const auto here = static_cast<double>(replica->rank(0).workspace_bytes()) -
                          static_cast<double>(wider);
        const auto planned = static_cast<double>(
            card_workspace_bytes(config, {.rows = kRows,
                                          .logits_rows = 1024,
                                          .tp_size = tp,
                                          .cp_size = cp}));
        EXPECT_NEAR(planned / here, 1.0, 0.02) << "tp " << tp << " cp " << cp;
    }
}

}  // namespace
}  // namespace aerie::model
