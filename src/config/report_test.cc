#include "config/report.h"

#include "config/example.h"

namespace aerie {
namespace {

LoadedConfig shipped(const std::string& name,
                     std::vector<std::pair<std::string, std::string>> flags = {}) {
    CommandLine line;
    line.config_path = "configs/" + name + "/settings.json";
    line.ae_config_path = "configs/" + name + "/config.toml";
    line.device = DeviceChoice::kCpu;
    line.overrides = std::move(flags);
    LoadedConfig loaded = load_config(line, {.memory_free = int64_t{8} << 30});
    EXPECT_TRUE(loaded.diagnostics.ok()) << testing::PrintToString(loaded.diagnostics.errors);
    return loaded;
}

TEST(Report, StartUpLinesOfFourNodes) {
    const LoadedConfig l = shipped("four-node");
    EXPECT_EQ(attention_group_line(l.config),
              "[AE-SEP] Attention group: tp=4, cp=2, nodes=node-0,node-1");
    EXPECT_EQ(expert_group_line(l.config),
              "[AE-SEP] Expert group: ep=8, dp=2, nodes=node-2,node-3");
    EXPECT_EQ(kv_transfer_line(l.config),
              "[AE-SEP] KV transfer backend: ucx, mode: active_passive");
    EXPECT_EQ(replicas_line(l.placement),
              "replicas: 2 prefill (tp 4, cp 2), 2 decode (tp 4, cp 2), 2 expert copies (ep 8)");
}

TEST(Report, WithSeparationOff) {
    const LoadedConfig l = shipped("four-node", {{"enable-ae-separation", "false"}});
    EXPECT_EQ(
        disabled_line(l.config, l.placement),
        "[AE-SEP] AE separation is disabled: attention and experts share 32 cards (4 replicas, 4 "
        "expert copies).");
}

TEST(Report, PlacementTableHasALineForEachNodeAndRole) {
    const std::string table = placement_table(shipped("four-node"));
    EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 1 + 6) << table;
    EXPECT_THAT(table, testing::ContainsRegex("node-3 +host node-3 +decode +24-31 +0-7 +"));
    EXPECT_THAT(table, testing::ContainsRegex("node-3 +host node-3 +expert +8-15 +0-7 +"));
}

TEST(Report, SizesLineIsSglangs) {
    EXPECT_EQ(sizes_line(
                  shipped("demo", {{"max-total-tokens", "65536"}, {"max-running-requests", "16"}})),
              "max_total_num_tokens=65536, chunked_prefill_size=2048, max_running_requests=16, "
              "context_len=32768");
}

TEST(Report, KvLinesSayHowManyTokensFitAndWhy) {
    const std::string given = kv_lines(shipped("demo", {{"max-total-tokens", "65536"}}));
    EXPECT_THAT(given, testing::StartsWith("KV cache of prefill replica 0: 65536 tokens in 1024 blocks "
                                           "(max_total_tokens 65536; memory holds "));
    EXPECT_THAT(given, testing::HasSubstr("\nKV cache of decode replica 0: 65536 tokens"));
    EXPECT_THAT(kv_lines(shipped("demo")),
                testing::HasSubstr("(8 × context_length 32768 on a CPU where max_total_tokens is not "
                                   "given; memory holds "));
    const std::string alike = kv_lines(shipped("four-node"));
    EXPECT_EQ(std::count(alike.begin(), alike.end(), '\n'), 1) << alike;
}

// Thirty-two ranks on a small machine: a pool a replica, together no more than the machine has.
TEST(Report, FourNodesFitASmallMachine) {
    const LoadedConfig l = shipped("four-node");
    int64_t sum = 0;
    for (const CardMemory& card : l.memory.cards) sum += card.used();
    EXPECT_LT(sum, int64_t{8} << 30);
    EXPECT_GT(l.memory.max_total_num_tokens, 32768);
}

TEST(Report, JsonHoldsConfigPlacementAndMemory) {
    const Json json = loaded_to_json(shipped("two-node"));
    EXPECT_EQ(json["ok"], Json(true));
    EXPECT_EQ(json["config"]["settings"]["tp_size"], Json(2));
    EXPECT_EQ(json["placement"]["replicas"].as_array().size(), 6u);
    EXPECT_EQ(json["placement"]["replicas"].as_array()[5]["ranks"].dump(), "[12,13,14,15]");
    EXPECT_EQ(json["memory"]["cards"].as_array().size(), 16u);
}

TEST(Example, NamesEveryKeyOfToml) {
    const std::string text = example_toml("models/demo");
    for (const char* name :
         {"nodes = 3", "port_range", "decode_tp", "exchange_timeout_s", "max_seq_len"}) {
        EXPECT_THAT(text, testing::HasSubstr(name));
    }
}

TEST(Report, AGpuThatOthersUseIsAnErrorWithTheTable) {
    CommandLine line;
    line.config_path = "configs/one-card/settings.json";
    line.device = DeviceChoice::kCuda;
    line.card_memory = int64_t{141} << 30;
    const LoadedConfig loaded = load_config(line, {});
    ASSERT_TRUE(loaded.diagnostics.ok()) << testing::PrintToString(loaded.diagnostics.errors);
    const CardMemory& card = loaded.memory.cards[0];
    EXPECT_TRUE(check_free_memory(loaded, 0, 0, card.used() - card.runtime).ok());
    const Status full = check_free_memory(loaded, 0, 0, int64_t{1} << 30);
    EXPECT_THAT(full.message(), testing::StartsWith("not enough memory: node-0 card 0 has 1.0 GiB free"));
    EXPECT_THAT(full.message(), testing::HasSubstr(memory_table(loaded)));
}

}  // namespace
}  // namespace aerie
