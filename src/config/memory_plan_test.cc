#include "config/memory_plan.h"

#include "config/card_memory.h"
#include "config/checks.h"

namespace aerie {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

ModelConfig deepseek_v3() {
    ModelConfig m;
    m.vocab_size = 129280;
    m.hidden_size = 7168;
    m.intermediate_size = 18432;
    m.moe_intermediate_size = 2048;
    m.num_hidden_layers = 61;
    m.first_k_dense_replace = 3;
    m.num_nextn_predict_layers = 1;
    m.max_position_embeddings = 163840;
    m.num_attention_heads = 128;
    m.q_lora_rank = 1536;
    m.kv_lora_rank = 512;
    m.qk_nope_head_dim = 128;
    m.qk_rope_head_dim = 64;
    m.v_head_dim = 128;
    m.n_routed_experts = 256;
    m.num_experts_per_tok = 8;
    m.n_shared_experts = 1;
    m.quantization_config = Fp8Quantization{};
    return m;
}

// One prefill node, one node of decode attention, the experts on `expert_nodes` nodes of 8 cards.
Config cluster(int expert_nodes) {
    Config config;
    config.device = DeviceChoice::kCuda;
    config.cluster.nodes = 2 + expert_nodes;
    config.cluster.gpus_per_node = 8;
    config.parallel.global_dp = 8;
    config.parallel.expert_ep = 8 * expert_nodes;
    config.ae_separation.enabled = true;
    config.ae_separation.prefill_nodes = {"node-0"};
    config.ae_separation.decode_attention_nodes = {"node-1"};
    for (int i = 0; i < expert_nodes; ++i) {
        config.ae_separation.decode_nodes.push_back(config.node_name(2 + i));
    }
    config.settings.context_length = 32768;
    return config;
}

MemoryPlan plan(const Config& config, const ModelConfig& model, int64_t card_memory) {
    return plan_memory(config, model, place(config), card_memory);
}

// model.md, section 5: all routed experts of V3 take 654 GB, an attention card at tp 1 about 20 GB,
// the KV of a token 68.6 KiB.
TEST(MemoryPlan, SizesOfDeepSeekV3) {
    const Config config = cluster(1);
    const MemoryPlan p = plan(config, deepseek_v3(), 141 * kGiB);
    int64_t experts = 0;
    for (const CardMemory& card : p.cards) experts += card.expert_weights;
    EXPECT_NEAR(static_cast<double>(experts), 654e9, 1e9);
    EXPECT_NEAR(static_cast<double>(p.cards[0].attention_weights), 20e9, 2.5e9);
    EXPECT_EQ(p.cards[0].expert_weights, 0);
    EXPECT_EQ(kv_bytes_per_token(config, deepseek_v3()), 61 * 1152);
}

TEST(MemoryPlan, TheKvPoolFillsWhatMemFractionLeaves) {
    const MemoryPlan p = plan(cluster(2), deepseek_v3(), 141 * kGiB);
    const CardMemory& card = p.cards[0];
    const double budget = 0.85 * 141.0 * static_cast<double>(kGiB);
    EXPECT_LE(static_cast<double>(card.attention_weights + card.kv), budget);
    EXPECT_GE(static_cast<double>(card.attention_weights + card.kv), budget - 64 * 61 * 1152.0);
    EXPECT_EQ(p.max_total_num_tokens % 64, 0);
    EXPECT_EQ(p.max_total_num_tokens, p.replicas[0].num_blocks * 64);
}

// One card with everything; a model that fits it.
Config one_card() {
    Config config;
    config.device = DeviceChoice::kCuda;
    config.settings.context_length = 32768;
    config.settings.chunked_prefill_size = 8192;
    config.settings.enable_deterministic_inference = false;
    return config;
}
ModelConfig five_layers() {
    ModelConfig m = deepseek_v3();
    m.num_hidden_layers = 5;
    return m;
}

// Keys and values per head of 16384 tokens, and what 8192 rows found in a second piece of them.
constexpr int64_t kExpanded = int64_t{128} * (16384 * 256 + 8192 * 128) * 2;

// What the largest step needs counts, whatever mem_fraction_static says.
TEST(MemoryPlan, KvNeverTakesWhatStepsNeed) {
    Config config = one_card();
    const MemoryPlan within = plan(config, five_layers(), 141 * kGiB);
    config.settings.mem_fraction_static = 1;
    const MemoryPlan all = plan(config, five_layers(), 141 * kGiB);
    EXPECT_LE(all.cards[0].used(), 141 * kGiB);
    EXPECT_GT(all.cards[0].used(), 141 * kGiB - 64 * 5 * 1152 - (int64_t{2} << 20));
    EXPECT_GT(all.max_total_num_tokens, within.max_total_num_tokens);
    EXPECT_EQ(all.cards[0].runtime, kCardContextBytes);
    EXPECT_THAT(all.reason, testing::ContainsRegex("less activations [0-9.]+ GiB and CUDA's "));
    // 8192 rows: queries, absorbed ones, attended latents, values of 128 heads; rows of experts.
    const double queries = 8192.0 * 128 * (192 + 576 + 512 + 128) * 2;
    const double experts = 8192.0 * 8 * (7168 + 2 * 2 * 2048 + 2048);
    const auto activations = static_cast<double>(all.cards[0].activations - kExpanded);
    EXPECT_GT(activations, queries + experts);
    EXPECT_LT(activations, 1.7 * (queries + experts));
}

TEST(MemoryPlan, EachSettingOfAStepCounts) {
    const auto activations = [](const Config& config) {
        return plan(config, five_layers(), 141 * kGiB).cards[0].activations;
    };
    const int64_t usual = activations(one_card());
    Config config = one_card();
    config.settings.chunked_prefill_size = 4096;
    EXPECT_LT(activations(config), usual * 65 / 100);
    config = one_card();
    config.settings.max_running_requests = 1;
    EXPECT_LT(activations(config), usual - 255 * 129280 * int64_t{4});
    config = one_card();
    // Rows and results in more bits, nothing expanded.
    config.settings.enable_deterministic_inference = true;
    EXPECT_GT(activations(config), usual - kExpanded);
    EXPECT_LT(activations(config), usual);
}

TEST(MemoryPlan, AllocationsOfACardAreWholeUnits) {
    EXPECT_EQ(card_allocation(100), 512);
    EXPECT_EQ(card_allocation((int64_t{2} << 20) + 1), int64_t{4} << 20);
}

TEST(MemoryPlan, GraphsOfAThirdAtMostFilledUp) {
    EXPECT_EQ(graph_rows_of(1), std::vector<int64_t>{1});
    EXPECT_EQ(graph_rows_of(40), (std::vector<int64_t>{1, 2, 4, 8, 16, 24, 32, 40}));
    EXPECT_EQ(graph_rows_of(4000).back(), kGraphRowsMax);
}

TEST(MemoryPlan, ContextParallelRanksHoldDifferentBlocks) {
    Config one = cluster(1), two = cluster(1);
    two.parallel.attention_cp = 2;
    two.parallel.global_dp = 4;
    const auto tokens = [](const Config& c) {
        return static_cast<double>(
            plan(c, deepseek_v3(), 141 * kGiB).replicas[0].max_total_num_tokens);
    };
    EXPECT_NEAR(tokens(two) / tokens(one), 2.0, 0.01);
}

TEST(MemoryPlan, MaxTotalTokensIsACap) {
    Config config = cluster(1);
    config.settings.max_total_tokens = 10000;
    const MemoryPlan p = plan(config, deepseek_v3(), 141 * kGiB);
    EXPECT_EQ(p.max_total_num_tokens, 10000 / 64 * 64);
    EXPECT_THAT(p.reason, testing::StartsWith("max_total_tokens 10000; memory holds "));
}

TEST(MemoryPlan, TheReasonNamesWhatLimits) {
    Config config = cluster(1);
    config.settings.mem_fraction_static = 0.8;
    const std::string gpu = plan(config, deepseek_v3(), 100 * kGiB).reason;
    EXPECT_THAT(gpu, testing::StartsWith("memory holds "));
    EXPECT_THAT(gpu, testing::HasSubstr("which have 100.0 GiB less 20.0 GiB that mem_fraction_static "
                                        "0.8 leaves and weights "));
    config.device = DeviceChoice::kCpu;
    config.settings.context_length = 1 << 20;
    EXPECT_EQ(plan(config, deepseek_v3(), 100 * kGiB).reason.find("context_length"), std::string::npos);
    config.settings.mem_fraction_static = 1;
    EXPECT_THAT(plan(config, deepseek_v3(), 100 * kGiB).reason,
                testing::ContainsRegex("which have 100.0 GiB less activations [0-9.]+ [KMG]iB and weights "));
}

// Every setting moves the number that it limits.
TEST(MemoryPlan, OnACpuBothLimitsWork) {
    Config config = cluster(1);
    config.device = DeviceChoice::kCpu;
    config.settings.context_length = 1 << 20;
    const auto tokens = [&] { return plan(config, deepseek_v3(), 100 * kGiB).max_total_num_tokens; };
    config.settings.mem_fraction_static = 0.85;
    const int64_t many = tokens();
    config.settings.mem_fraction_static = 0.8;
    const int64_t fewer = tokens();
    EXPECT_NEAR(static_cast<double>(many - fewer),
                0.05 * 100.0 * static_cast<double>(kGiB) / (61 * 1152), 64);
    config.settings.max_total_tokens = 4096;
    EXPECT_EQ(tokens(), 4096);
}

TEST(MemoryPlan, MaxRunningRequestsIsSharedAmongTheReplicas) {
    Config config = cluster(1);
    config.settings.max_running_requests = 100;
    const MemoryPlan p = plan(config, deepseek_v3(), 141 * kGiB);
    EXPECT_EQ(p.replicas[0].max_running_requests, 100 / 8);
    config.settings.max_running_requests = 1;
    EXPECT_EQ(plan(config, deepseek_v3(), 141 * kGiB).replicas[0].max_running_requests, 1);
}

TEST(MemoryPlan, ACpuPoolStopsAtEightLongestSequences) {
    Config config = cluster(1);
    config.device = DeviceChoice::kCpu;
    config.settings.context_length = 1024;
    const MemoryPlan p = plan(config, deepseek_v3(), 400 * kGiB);
    EXPECT_EQ(p.max_total_num_tokens, 8 * 1024);
    EXPECT_THAT(p.reason, testing::HasSubstr("8 × context_length"));
}

// On a CPU, host memory is what the cards have; on a GPU it is not.
TEST(MemoryPlan, EvictedKvTakesHostMemory) {
    for (const DeviceChoice device : {DeviceChoice::kCpu, DeviceChoice::kCuda}) {
        Config config = cluster(1);
        config.device = device;
        config.settings.context_length = 1 << 20;
        const MemoryPlan without = plan(config, deepseek_v3(), 400 * kGiB);
        config.settings.hicache_size_gb = 10;
        const MemoryPlan with = plan(config, deepseek_v3(), 400 * kGiB);
        const int64_t block_bytes = kv_bytes_per_token(config, deepseek_v3()) * 64;
        EXPECT_EQ(with.replicas[0].num_host_blocks, 10'000'000'000 / block_bytes);
        const bool cpu = device == DeviceChoice::kCpu;
        EXPECT_EQ(with.cards[0].host_kv,
                  cpu ? 10'000'000'000 / block_bytes * block_bytes : 0);
        EXPECT_EQ(with.max_total_num_tokens < without.max_total_num_tokens, cpu);
        EXPECT_EQ(with.replicas[0].num_file_blocks, 0);
        config.settings.hicache_path = "/tmp";
        config.settings.hicache_file_size_gb = 20;
        const MemoryPlan file = plan(config, deepseek_v3(), 400 * kGiB);
        EXPECT_EQ(file.replicas[0].num_file_blocks, 20'000'000'000 / block_bytes);
        EXPECT_EQ(file.max_total_num_tokens, with.max_total_num_tokens);
        config.settings.disable_radix_cache = true;
        EXPECT_EQ(plan(config, deepseek_v3(), 400 * kGiB).replicas[0].num_host_blocks, 0);
    }
}

TEST(MemoryPlan, WithMtpOneMoreLayer) {
    Config config = cluster(1);
    config.settings.enable_mtp = true;
    EXPECT_EQ(kv_bytes_per_token(config, deepseek_v3()), 62 * 1152);
}

TEST(MemoryPlan, NothingIsLeftForKv) {
    const MemoryPlan p = plan(cluster(1), deepseek_v3(), 10 * kGiB);
    EXPECT_EQ(p.max_total_num_tokens, 0);
}

std::string memory_error(const Config& config, int64_t card_memory) {
    Config complete = config;
    complete.ae_separation.decode_tp = config.parallel.attention_tp;
    complete.ae_separation.decode_cp = config.parallel.attention_cp;
    Diagnostics diagnostics;
    check_memory(complete, deepseek_v3(), plan(complete, deepseek_v3(), card_memory), diagnostics);
    return diagnostics.errors.empty() ? "" : diagnostics.errors[0];
}

TEST(NotEnoughMemory, NamesMoreExpertNodes) {
    EXPECT_EQ(memory_error(cluster(1), 141 * kGiB), "");
    const std::string text = memory_error(cluster(1), 77 * kGiB);
    EXPECT_THAT(text,
                testing::StartsWith("not enough memory: node-2 card 0 has 77.0 GiB; attention "
                                    "weights 0 B + expert weights 76.1 GiB"));
    EXPECT_THAT(text,
                testing::HasSubstr("ep_size = 16 in settings.json with expert_ep = 16, nodes = 4 "
                                   "and 2 names in decode_nodes in config.toml"));
    EXPECT_EQ(memory_error(cluster(2), 80 * kGiB), "");
}

TEST(NotEnoughMemory, NamesALargerFractionAndAShorterChunk) {
    Config config = cluster(2);
    config.settings.mem_fraction_static = 0.2;  // less than the weights
    EXPECT_THAT(memory_error(config, 80 * kGiB),
                testing::HasSubstr("would fit: mem_fraction_static = 0.99"));
    config = cluster(2);
    config.settings.chunked_prefill_size = 131072;
    EXPECT_THAT(memory_error(config, 80 * kGiB), testing::HasSubstr("chunked_prefill_size = "));
}

TEST(NotEnoughMemory, NamesALargerTp) {
    Config config = cluster(2);
    config.settings.chunked_prefill_size = 2048;
    const std::string text = memory_error(config, 22 * kGiB);
    EXPECT_THAT(text, testing::HasSubstr("not enough memory"));
    EXPECT_THAT(
        memory_error(cluster(8), 22 * kGiB),
        testing::HasSubstr("tp_size = 2 and dp_size = 4 in settings.json with attention_tp = 2 "
                           "and global_dp = 4 in config.toml"));
}

TEST(Bytes, ReadAndWritten) {
    EXPECT_EQ(parse_bytes("141G"), 141 * kGiB);
    EXPECT_EQ(parse_bytes("80GiB"), 80 * kGiB);
    EXPECT_EQ(parse_bytes("1.5GB"), 3 * kGiB / 2);
    EXPECT_EQ(parse_bytes("512M"), kGiB / 2);
    EXPECT_EQ(parse_bytes("1T"), 1024 * kGiB);
    EXPECT_EQ(parse_bytes("4096"), 4096);
    for (const char* text : {"", "G", "12X", "-1G", "0", "1 G"})
        EXPECT_EQ(parse_bytes(text), 0) << text;
    EXPECT_EQ(format_bytes(3 * kGiB / 2), "1.5 GiB");
    EXPECT_EQ(format_bytes(100), "100 B");
}

}  // namespace
}  // namespace aerie
