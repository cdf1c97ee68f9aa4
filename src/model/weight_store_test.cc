#include "model/weight_store.h"

#include <thread>

#include "model/attention_weights.h"
#include "model/expert_weights.h"
#include "model/testing/test_checkpoint.h"

namespace aerie::model {
namespace {

using testing::HasSubstr;

const std::string kDemo = AERIE_SOURCE_DIR "/models/demo";

ModelConfig demo_config() {
    std::vector<std::string> errors;
    ModelConfig config = read_model_config(kDemo, errors);
    CHECK(errors.empty(), "{}", errors[0]);
    return config;
}

std::unique_ptr<WeightStore> open_store(const std::string& folder, WeightOptions options = {}) {
    auto source = open_checkpoint(folder, ReadMode::kAuto);
    CHECK(source.ok(), "{}", source.message());
    return std::make_unique<WeightStore>(*std::move(source), options);
}

TEST(WeightStore, ExpertRanksReadTheirExpertsAndNothingElse) {
    auto store = open_store(kDemo);
    Stream stream;
    auto experts = load_routed_experts(
        demo_config(), {.expert_begin = 8, .expert_end = 11, .with_mtp = true}, *store, stream);
    ASSERT_TRUE(experts.ok()) << experts.message();
    const auto loaded = store->loaded_tensors();
    // 5 MoE layers and the MTP layer, 3 experts, 3 projections, weight and scale.
    EXPECT_EQ(loaded.size(), 6u * 3 * 3 * 2);
    for (const std::string& name : loaded)
        EXPECT_THAT(name, testing::ContainsRegex("mlp\\.experts\\.(8|9|10)\\."));
    EXPECT_EQ(experts->layers[0], nullptr);
    EXPECT_EQ(experts->layer(3).size(), 3u);
    EXPECT_EQ(experts->layer(3)[0].gate_up.n(), 256);
}

TEST(WeightStore, AttentionRanksReadNoExpert) {
    auto store = open_store(kDemo);
    Stream stream;
    ASSERT_TRUE(load_attention_weights(demo_config(), {.with_mtp = true}, *store, stream).ok());
    for (const std::string& name : store->loaded_tensors())
        EXPECT_THAT(name, testing::Not(HasSubstr("mlp.experts.")));
}

TEST(WeightStore, TogetherTheyReadEveryTensorOnce) {
    auto store = open_store(kDemo);
    Stream stream;
    const ModelConfig config = demo_config();
    ASSERT_TRUE(load_attention_weights(config, {.with_mtp = true}, *store, stream).ok());
    ASSERT_TRUE(load_routed_experts(config, {.expert_end = 32, .with_mtp = true}, *store, stream).ok());
    EXPECT_EQ(store->loaded_tensors().size(), 1311u);     // all that the index names
    EXPECT_EQ(store->read_bytes(), 42'250'504u);          // its total_size
    EXPECT_GT(store->held_bytes(), 42'000'000u);
}

TEST(WeightStore, RanksShareWhatIsEqual) {
    auto store = open_store(kDemo);
    const ModelConfig config = demo_config();
    std::vector<AttentionWeights> ranks(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {  // two replicas of tp 2
        threads.emplace_back([&, i] {
            Stream stream;
            auto weights =
                load_attention_weights(config, {.tp = i % 2, .tp_size = 2}, *store, stream);
            CHECK(weights.ok(), "{}", weights.message());
            ranks[static_cast<size_t>(i)] = *std::move(weights);
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(ranks[0].layers[2].q_b, ranks[2].layers[2].q_b);
    EXPECT_NE(ranks[0].layers[2].q_b, ranks[1].layers[2].q_b);
    EXPECT_EQ(ranks[0].embedding, ranks[1].embedding);
    EXPECT_EQ(ranks[0].layers[2].shared, ranks[3].layers[2].shared);
    EXPECT_EQ(ranks[0].layers[2].q_b->n(), 4 * 192);
    EXPECT_EQ(ranks[0].layers[2].o->k(), 4 * 128);
    EXPECT_EQ(ranks[1].lm_head->n(), 4096);
    EXPECT_EQ(ranks[0].layers[2].kv_heads->uk.size(), 4u);
}

TEST(WeightStore, AFailureIsGivenToAllAndKept) {
    WeightStore store(make_dummy_source(1, false), {});
    int calls = 0;
    const auto failing = [&]() -> Result<std::vector<float>> {
        ++calls;
        return error("no such tensor");
    };
    for (int i = 0; i < 2; ++i) {
        auto value = store.get<std::vector<float>>("key", failing);
        ASSERT_FALSE(value.ok());
        EXPECT_EQ(value.message(), "no such tensor");
    }
    EXPECT_EQ(calls, 1);
}

struct Broken {
    const char* name;
    void (*build)(TestFile&);
    const char* message;
};

TEST(WeightStore, WhatIsWrongWithATensorIsNamed) {
    const std::vector<Broken> cases = {
        {"FP8 without scales", [](TestFile& f) { f.add("m.weight", "F8_E4M3", {200, 130}); },
         "tensor m.weight_scale_inv: is missing"},
        {"too few scales",
         [](TestFile& f) {
             f.add("m.weight", "F8_E4M3", {200, 130}).add("m.weight_scale_inv", "F32", {2, 1});
         },
         "tensor m.weight_scale_inv: shape is [2, 1], expected [2, 2]"},
        {"scales in bf16",
         [](TestFile& f) {
             f.add("m.weight", "F8_E4M3", {200, 130}).add("m.weight_scale_inv", "BF16", {2, 2});
         },
         "tensor m.weight_scale_inv: dtype is BF16, expected F32"},
        {"weight in fp16", [](TestFile& f) { f.add("m.weight", "F16", {200, 130}); },
         "tensor m.weight: dtype is F16, expected F8_E4M3, BF16 or F32"},
        {"transposed weight", [](TestFile& f) { f.add("m.weight", "BF16", {130, 200}); },
         "tensor m.weight: shape is [130, 200], expected [200, 130]"},
    };
    for (const Broken& broken : cases) {
        TestFile file;
        broken.build(file);
        const TestFolder folder;
        folder.write("model.safetensors", file.content());
        auto store = open_store(folder.path());
        const WeightSlice slice{.module = "m", .rows = 200, .cols = 130};
        auto packed = store->pack({&slice, 1});
        ASSERT_FALSE(packed.ok()) << broken.name;
        EXPECT_THAT(packed.message(), HasSubstr(broken.message));
        EXPECT_THAT(packed.message(), HasSubstr(folder.path()));
    }
}

TEST(WeightStore, AMissingLayerStopsTheRankWithItsName) {
    ModelConfig config = demo_config();
    config.num_hidden_layers = 8;  // the checkpoint has 6 and the MTP layer
    auto store = open_store(kDemo);
    Stream stream;
    auto weights = load_attention_weights(config, {}, *store, stream);
    ASSERT_FALSE(weights.ok());
    EXPECT_THAT(weights.message(), HasSubstr("model.layers.7."));
    EXPECT_THAT(weights.message(), HasSubstr("is missing"));
    auto uneven = load_attention_weights(demo_config(), {.tp_size = 3}, *store, stream);
    ASSERT_FALSE(uneven.ok());
    EXPECT_THAT(uneven.message(), HasSubstr("num_attention_heads 8"));
    ModelConfig odd = demo_config();
    odd.v_head_dim = 80;
    auto expanding = load_attention_weights(odd, {.can_expand = true}, *store, stream);
    ASSERT_FALSE(expanding.ok());
    EXPECT_THAT(expanding.message(), HasSubstr("v_head_dim 80"));
}

}  // namespace
}  // namespace aerie::model
