// The MTP layer against plain arithmetic, and what must not change a bit of it.
#include <cstring>

#include "base/fault.h"
#include "model/testing/demo.h"
#include "model/testing/plain_model.h"

namespace aerie::model {
namespace {

using testing::HasSubstr;

const std::string kDemo = AERIE_SOURCE_DIR "/models/demo";

std::unique_ptr<TestReplica> demo_replica(DType compute, ReplicaOptions options) {
    options.mtp = true;
    auto replica = TestReplica::create(demo_model(kDemo, compute), options);
    CHECK(replica.ok(), "{}", replica.message());
    return *std::move(replica);
}

// Different texts for different seeds.
std::vector<int32_t> text(size_t num_tokens, size_t from = 0) {
    auto prompts = read_golden_prompts(kDemo + "/golden/golden_long.json");
    CHECK(prompts.ok(), "{}", prompts.message());
    const auto begin = (*prompts)[0].prompt_ids.begin() + static_cast<int64_t>(from);
    return {begin, begin + static_cast<int64_t>(num_tokens)};
}

void append(std::vector<float>& to, ConstView rows) {
    const auto* values = rows.row_as<float>(0);
    to.insert(to.end(), values, values + rows.rows * rows.cols);
}

// Logits of the drafts at every position, then of two more behind the last.
std::vector<float> draft_logits(TestReplica& replica, const std::vector<int32_t>& tokens, int64_t chunk,
                                const std::vector<int64_t>& cuts = {}) {
    std::vector<float> logits;
    const int sequence = replica.add_sequence(tokens);
    for (int64_t done = 0; done < std::ssize(tokens); done += chunk) {
        Status status =
            replica.step({{sequence, std::min(chunk, std::ssize(tokens) - done), true}}, cuts);
        if (status) status = replica.draft(cuts);
        CHECK(status.ok(), "{}", status.message());
        append(logits, replica.logits());
    }
    for (int32_t token : {17, 4011}) {
        const Status status = replica.draft_on({token});
        CHECK(status.ok(), "{}", status.message());
        append(logits, replica.logits());
    }
    return logits;
}

// The same in plain arithmetic.
std::vector<double> plain_draft_logits(PlainModel& model, std::vector<int32_t> tokens) {
    PlainModel::Rows h = model.hidden(tokens);
    h.insert(h.begin(), std::vector<double>(h[0].size()));
    h.pop_back();
    PlainModel::Rows drafted = model.mtp_hidden(tokens, h);
    for (int32_t token : {17, 4011}) {
        tokens.push_back(token);
        h.push_back(drafted.back());
        drafted.push_back(model.mtp_hidden(tokens, h).back());
    }
    const std::vector<float> logits = model.logits(drafted);
    return {logits.begin(), logits.end()};
}

TEST(Mtp, AgreesWithThePlainModelInEverySplit) {
    const auto tokens = text(23);
    auto source = open_checkpoint(kDemo, ReadMode::kAuto);
    ASSERT_TRUE(source.ok()) << source.message();
    const ModelConfig& config = demo_model(kDemo, DType::kF32).config;
    PlainModel plain(config, **source);
    const std::vector<double> expected = plain_draft_logits(plain, tokens);
    for (const auto& [tp, cp] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 3}}) {
        const ReplicaOptions options{
            .tp_size = tp, .cp_size = cp, .ep_size = tp, .page_size = 4, .tile_rows = 8};
        EXPECT_LT(relative_difference(
                      draft_logits(*demo_replica(DType::kF32, options), tokens, 9, {5}), expected),
                  tp * cp == 1 ? 1e-5 : 1e-4)
            << "tp " << tp << " cp " << cp;
        EXPECT_LT(relative_difference(
                      draft_logits(*demo_replica(DType::kBF16, options), tokens, 9, {5}), expected),
                  0.1)
            << "tp " << tp << " cp " << cp;
    }
}

class MtpExactness : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(, MtpExactness, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(MtpExactness, ChunksMicrobatchesPagesAndTilesChangeNothing) {
    const auto tokens = text(100);
    for (const auto& [tp, cp] : {std::pair{1, 1}, {2, 2}}) {
        const ReplicaOptions options{.tp_size = tp, .cp_size = cp, .ep_size = tp, .page_size = 16};
        auto replica = demo_replica(GetParam(), options);
        const std::vector<float> whole = draft_logits(*replica, tokens, 512);
        EXPECT_EQ(draft_logits(*replica, tokens, 33), whole);
        EXPECT_EQ(draft_logits(*replica, tokens, 7, {2, 5}), whole);
        EXPECT_EQ(draft_logits(*replica, tokens, 512, {10, 64}), whole);
        ReplicaOptions tiles = options;
        tiles.tile_rows = 24;
        EXPECT_EQ(draft_logits(*demo_replica(GetParam(), tiles), tokens, 50), whole);
    }
    EXPECT_EQ(draft_logits(*demo_replica(GetParam(), {}), text(20), 1),
              draft_logits(*demo_replica(GetParam(), {}), text(20), 20));
}

TEST_P(MtpExactness, ABatchIsItsSequencesAlone) {
    auto replica = demo_replica(GetParam(), {.max_logits_rows = 4});
    std::vector<std::vector<int32_t>> prompts;
    for (size_t length : {1, 5, 64, 30}) prompts.push_back(text(length, length));
    std::vector<std::vector<float>> alone(prompts.size());
    const std::vector<int32_t> next = {5, 6, 7, 8};
    for (size_t i = 0; i < prompts.size(); ++i) {
        const int sequence = replica->add_sequence(prompts[i]);
        ASSERT_TRUE(replica->step({{sequence, std::ssize(prompts[i])}}).ok());
        ASSERT_TRUE(replica->draft().ok());
        append(alone[i], replica->logits());
        ASSERT_TRUE(replica->draft_on({next[i]}).ok());
        append(alone[i], replica->logits());
    }
    std::vector<StepPart> parts;
    for (const auto& prompt : prompts)
        parts.push_back({replica->add_sequence(prompt), std::ssize(prompt)});
    ASSERT_TRUE(replica->step(parts, {40, 80}).ok());
    ASSERT_TRUE(replica->draft({3, 50}).ok());
    std::vector<std::vector<float>> together(prompts.size());
    const auto take = [&] {
        for (size_t i = 0; i < prompts.size(); ++i) {
            const auto row = static_cast<int64_t>(i);
            append(together[i], replica->logits().slice_rows(row, row + 1));
        }
    };
    take();
    ASSERT_TRUE(replica->draft_on(next).ok());
    take();
    EXPECT_EQ(together, alone);
}

TEST_P(MtpExactness, TheMainModelIsTheSameWithIt) {
    for (const auto& [tp, cp] : {std::pair{1, 1}, {2, 2}}) {
        const ReplicaOptions options{.tp_size = tp, .cp_size = cp, .page_size = 16};
        auto with = demo_replica(GetParam(), options);
        auto without = TestReplica::create(demo_model(kDemo, GetParam()), options);
        ASSERT_TRUE(without.ok());
        EXPECT_EQ(logits_hash(*with, text(60), 25), logits_hash(**without, text(60), 25));
        EXPECT_EQ((*without)->rank(0).hidden_rows().rows, 0);
    }
}

TEST(Mtp, EachRankHasTheHiddenRowsOfAllRows) {
    auto replica = demo_replica(DType::kF32, {.tp_size = 2, .cp_size = 2, .tile_rows = 8});
    const auto tokens = text(30);
    ASSERT_TRUE(replica->step({{replica->add_sequence(tokens), 30}}, {12}).ok());
    const ConstView first = replica->rank(0).hidden_rows();
    ASSERT_EQ(first.rows, 30);
    std::vector<float> values;
    append(values, first);
    for (int rank = 1; rank < 4; ++rank) {
        std::vector<float> theirs;
        append(theirs, replica->rank(rank).hidden_rows());
        EXPECT_EQ(theirs, values) << rank;
    }
    auto source = open_checkpoint(kDemo, ReadMode::kAuto);
    ASSERT_TRUE(source.ok());
    std::vector<double> expected;
    for (const auto& row : PlainModel(demo_model(kDemo, DType::kF32).config, **source).hidden(tokens))
        expected.insert(expected.end(), row.begin(), row.end());
    EXPECT_LT(relative_difference(values, expected), 1e-4);
}

TEST(Mtp, FaultsShow) {
    for (DType compute : {DType::kF32, DType::kBF16}) {
        auto replica = demo_replica(compute, {});
        const std::vector<float> right = draft_logits(*replica, text(40), 512);
        planted_fault = static_cast<int>(Fault::kMtpHidden);
        EXPECT_NE(draft_logits(*replica, text(40), 512), right) << "no hidden rows";
        planted_fault = 0;
        for (int expert = 0; expert < 32; expert += 31) {
            replica->experts(0).drop_expert(6, expert);
            EXPECT_NE(draft_logits(*replica, text(40), 512), right) << "a dropped expert";
        }
        replica->experts(0).drop_expert(-1, -1);
        EXPECT_EQ(draft_logits(*replica, text(40), 512), right);
    }
}

TEST(Mtp, AFailedPassEndsOnAllRanksAndTheNextStepIsRight) {
    auto replica = demo_replica(DType::kBF16, {.tp_size = 2, .ep_size = 2});
    const std::vector<float> right = draft_logits(*replica, text(30), 512);
    ASSERT_TRUE(replica->step({{replica->add_sequence(text(30)), 30}}).ok());
    replica->experts(1).fail_dispatch(0);
    const Status failed = replica->draft({15});
    ASSERT_FALSE(failed.ok());
    EXPECT_THAT(failed.message(), HasSubstr("planted failure"));
    EXPECT_EQ(replica->rank(0).hidden_rows().rows, 0);
    replica->group().reset();
    EXPECT_EQ(draft_logits(*replica, text(30), 512), right);
}

TEST(Mtp, WrongInputsAreErrors) {
    auto replica = demo_replica(DType::kBF16, {});
    ASSERT_TRUE(replica->step({{replica->add_sequence(text(3)), 3}}).ok());
    const std::vector<int32_t> blocks = {0}, tokens = {1, 2};
    const std::vector<std::span<const int32_t>> tables = {blocks};
    const std::vector<SequenceSlice> slices = {{0, 2, 0, tables}};
    const std::vector<int64_t> begins = {0};
    const Tensor given(DType::kBF16, 1, 256), wide(DType::kBF16, 1, 512), exact(DType::kF32, 1, 256);
    struct Case {
        const char* message;
        std::vector<int32_t> hidden_of;
        ConstView given;
    };
    const Case cases[] = {
        {"hidden rows of 1 tokens, expected of 2", {0}, {}},
        {"hidden row 3, the last pass had 3", {0, 3}, {}},
        {"given hidden row 1 of 1", {given_hidden_row(0), given_hidden_row(1)}, given.view()},
        {"given hidden row 0 of 0", {0, given_hidden_row(0)}, {}},
        {"given_hidden is bfloat16 of 512 columns, expected bfloat16 of 256", {0, 1}, wide.view()},
        {"given_hidden is float32 of 256 columns", {0, 1}, exact.view()},
    };
    const StepInput step{.tokens = tokens,
                         .sequences = slices,
                         .microbatch_begin = begins,
                         .logits_rows = {}};
    for (const Case& c : cases) {
        const Status status = replica->rank(0).draft({step, c.hidden_of, c.given}, nullptr);
        ASSERT_FALSE(status.ok()) << c.message;
        EXPECT_THAT(status.message(), HasSubstr(c.message));
    }
    const std::vector<int32_t> fits = {2, given_hidden_row(0)};
    EXPECT_TRUE(replica->rank(0).draft({step, fits, given.view()}, nullptr).ok());

    auto without = TestReplica::create(demo_model(kDemo, DType::kBF16), {});
    ASSERT_TRUE(without.ok());
    EXPECT_THAT((*without)->rank(0).draft({step, fits, given.view()}, nullptr).message(),
                HasSubstr("enable_mtp = true"));
}

}  // namespace
}  // namespace aerie::model
