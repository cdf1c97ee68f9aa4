// What must not change a bit of the logits, and faults that must.
#include <cstring>

#include "model/testing/demo.h"

namespace aerie::model {
namespace {

const std::string kDemo = AERIE_SOURCE_DIR "/models/demo";

std::unique_ptr<TestReplica> demo_replica(DType compute, const ReplicaOptions& options) {
    auto replica = TestReplica::create(demo_model(kDemo, compute), options);
    CHECK(replica.ok(), "{}", replica.message());
    return *std::move(replica);
}

// 437 tokens, the shortest of the long goldens.
const std::vector<int32_t>& text() {
    static const std::vector<int32_t> tokens = [] {
        auto prompts = read_golden_prompts(kDemo + "/golden/golden_long.json");
        CHECK(prompts.ok(), "{}", prompts.message());
        return (*prompts)[0].prompt_ids;
    }();
    return tokens;
}
// A part of it, for what takes long.
std::vector<int32_t> text(size_t num_tokens) {
    return {text().begin(), text().begin() + static_cast<int64_t>(num_tokens)};
}

class Exactness : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(, Exactness, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Exactness, ChunksMicrobatchesPagesTilesAndThreadsChangeNothing) {
    const uint64_t whole = logits_hash(*demo_replica(GetParam(), {}), text(), 512);
    struct Case {
        const char* name;
        ReplicaOptions options;
        int64_t chunk;
        std::vector<int64_t> cuts;
    };
    const std::vector<Case> cases = {
        {"chunks of 64", {}, 64, {}},
        {"chunks of 100", {}, 100, {}},
        {"two microbatches", {}, 512, {200}},
        {"three microbatches", {}, 512, {3, 300}},
        {"chunks and microbatches", {}, 150, {50, 51}},
        {"pages of 16", {.page_size = 16}, 512, {}},
        {"pages of 128", {.page_size = 128}, 90, {}},
        {"pages of 1", {.page_size = 1}, 512, {}},
        {"blocks in order", {.scatter_blocks = false}, 512, {}},
        {"tiles of 7", {.tile_rows = 7}, 512, {}},
        {"one tile", {.tile_rows = 512}, 512, {}},
        {"three threads", {.num_threads = 3}, 512, {100}},
    };
    for (const Case& c : cases) {
        EXPECT_EQ(logits_hash(*demo_replica(GetParam(), c.options), text(), c.chunk, c.cuts), whole)
            << c.name;
    }
}

TEST_P(Exactness, OneTokenAtATimeIsThePromptAtOnce) {
    auto replica = demo_replica(GetParam(), {});
    EXPECT_EQ(logits_hash(*replica, text(70), 1), logits_hash(*replica, text(70), 512));
}

TEST_P(Exactness, ABatchIsItsSequencesAlone) {
    auto replica = demo_replica(GetParam(), {});
    std::vector<std::vector<int32_t>> prompts;
    for (size_t length : {1, 5, 64, 30, 100})
        prompts.emplace_back(text().begin() + static_cast<int64_t>(length),
                             text().begin() + static_cast<int64_t>(2 * length));
    std::vector<float> alone, together;
    for (const auto& prompt : prompts)
        ASSERT_TRUE(replica->prefill(replica->add_sequence(prompt), 512, true, alone).ok());
    std::vector<StepPart> parts;
    for (const auto& prompt : prompts)
        parts.push_back({replica->add_sequence(prompt), static_cast<int64_t>(prompt.size()), true});
    ASSERT_TRUE(replica->step(parts, {40, 80}).ok());
    const ConstView logits = replica->logits();
    ASSERT_EQ(static_cast<size_t>(logits.rows * logits.cols), alone.size());
    EXPECT_EQ(std::memcmp(logits.data, alone.data(), alone.size() * sizeof(float)), 0);
}

TEST_P(Exactness, WithinASplitToo) {
    for (const auto& [tp, cp] : {std::pair{2, 1}, {1, 2}, {2, 2}, {1, 3}}) {
        const ReplicaOptions options{.tp_size = tp, .cp_size = cp, .ep_size = 2, .page_size = 16};
        ReplicaOptions other = options;
        other.tile_rows = 50;
        const uint64_t whole = logits_hash(*demo_replica(GetParam(), options), text(200), 512);
        EXPECT_EQ(logits_hash(*demo_replica(GetParam(), options), text(200), 33, {10, 20}), whole);
        EXPECT_EQ(logits_hash(*demo_replica(GetParam(), other), text(200), 512, {77}), whole);
    }
}

TEST(WhereFp8IsUnpacked, ChangesNothing) {
    auto unpacked = TestModel::load(kDemo, {.compute = DType::kBF16, .keep_fp8 = false});
    ASSERT_TRUE(unpacked.ok());
    auto replica = TestReplica::create(**unpacked, {});
    ASSERT_TRUE(replica.ok());
    EXPECT_EQ(logits_hash(**replica, text(200), 512),
              logits_hash(*demo_replica(DType::kBF16, {}), text(200), 512));
}

TEST(PlantedFaults, Show) {
    for (DType compute : {DType::kF32, DType::kBF16}) {
        auto replica = demo_replica(compute, {});
        const uint64_t right = logits_hash(*replica, text(200), 64);
        // Every expert of every MoE layer serves some token of such a text; one is enough here.
        replica->experts(0).drop_expert(3, 7);
        EXPECT_NE(logits_hash(*replica, text(200), 64), right) << "a dropped expert";
        replica->experts(0).drop_expert(-1, -1);
        EXPECT_EQ(logits_hash(*replica, text(200), 64), right);

        std::vector<float> logits;
        const int sequence = replica->add_sequence(text(200));
        ASSERT_TRUE(replica->step({{sequence, 128, true}}).ok());
        std::memset(replica->pool(0).block(2, replica->blocks(sequence, 0)[1]), 0,
                    replica->pool(0).block_bytes());
        ASSERT_TRUE(replica->prefill(sequence, 72, true, logits).ok());
        std::vector<float> expected;
        const int other = replica->add_sequence(text(200));
        ASSERT_TRUE(replica->step({{other, 128, true}}).ok());
        ASSERT_TRUE(replica->prefill(other, 72, true, expected).ok());
        EXPECT_NE(logits, expected) << "a zeroed block of one layer";
    }
}

}  // namespace
}  // namespace aerie::model
