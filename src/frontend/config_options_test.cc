#include "frontend/config_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aerie::frontend {
namespace {

LoadedConfig demo(std::vector<std::pair<std::string, std::string>> overrides = {}) {
    const std::string root = AERIE_SOURCE_DIR;
    CommandLine line;
    line.config_path = root + "/configs/demo/settings.json";
    line.ae_config_path = root + "/configs/demo/config.toml";
    line.overrides = std::move(overrides);
    line.device = DeviceChoice::kCpu;
    LoadedConfig loaded = load_config(line, {.memory_free = int64_t{8} << 30});
    EXPECT_TRUE(loaded.diagnostics.ok()) << loaded.diagnostics.errors.at(0);
    return loaded;
}

TEST(ConfigOptions, SayWhatTheFilesSay) {
    const FrontendOptions o = frontend_options(
        demo({{"port", "1234"},
              {"api-key", "secret"},
              {"max-queued-requests", "7"},
              {"http-max-body-mb", "0.5"},
              {"http-max-url-kb", "2"},
              {"http-idle-timeout-s", "3"},
              {"http-max-tools", "5"}}),
        "9.9");
    EXPECT_EQ(o.http.port, 1234);
    EXPECT_EQ(o.api_key, "secret");
    EXPECT_EQ(o.max_queued_requests, 7);
    EXPECT_EQ(o.http.max_body_bytes, 512u << 10);
    EXPECT_EQ(o.http.max_url_bytes, 2048u);
    EXPECT_EQ(o.http.idle_timeout_s, 3);
    EXPECT_EQ(o.defaults.limits.max_tools, 5);
    EXPECT_EQ(o.server_info["http_max_tools"], Json(5));
    EXPECT_TRUE(o.max_running_requests.has_value());
    EXPECT_EQ(o.defaults.temperature, 0.6);  // of generation_config.json
    EXPECT_EQ(o.defaults.top_p, 0.95);
    EXPECT_EQ(o.defaults.vocab_size, 8192);
    EXPECT_GT(o.context_length, 0);
    EXPECT_EQ(o.server_info["version"], Json("9.9"));
    EXPECT_EQ(o.server_info["api_key"], Json("***"));
    EXPECT_TRUE(o.server_info["page_size"].is_int());
    EXPECT_GT(o.server_info["max_total_num_tokens"].as_int(), 0);
    EXPECT_EQ(o.model_info["architectures"].dump(), R"(["DeepseekV3ForCausalLM"])");
    EXPECT_FALSE(o.ae_separation["placement"].as_array().empty());
    EXPECT_THAT(o.server_info.dump(), testing::Not(testing::HasSubstr("secret\"")));
}

TEST(ConfigOptions, ServerInfoSaysHowManyKvTokensFitAndWhy) {
    const auto kv_cache = [](std::vector<std::pair<std::string, std::string>> overrides) {
        return frontend_options(demo(std::move(overrides)), "1").server_info["kv_cache"];
    };
    const Json given = kv_cache({{"max-total-tokens", "4096"}});
    ASSERT_EQ(given.as_array().size(), 2u);  // prefill and decode
    for (const Json& replica : given.as_array()) {
        EXPECT_EQ(replica["max_total_num_tokens"], Json(4096));
        EXPECT_THAT(replica["reason"].as_string(),
                    testing::StartsWith("max_total_tokens 4096; memory holds "));
    }
    const Json derived = kv_cache({{"mem-fraction-static", "0.01"}});
    for (const Json& replica : derived.as_array()) {
        EXPECT_THAT(replica["reason"].as_string(), testing::StartsWith("memory holds "));
        EXPECT_THAT(replica["reason"].as_string(), testing::HasSubstr("mem_fraction_static 0.01"));
    }
}

// docs/limits.md shows both.
TEST(ConfigOptions, TheSettingsAndTheServerHaveTheSameDefaults) {
    const http::ServerOptions here = frontend_options(demo(), "1").http, there;
    EXPECT_EQ(here.max_connections, there.max_connections);
    EXPECT_EQ(here.max_body_bytes, there.max_body_bytes);
    EXPECT_EQ(here.max_header_bytes, there.max_header_bytes);
    EXPECT_EQ(here.max_headers, there.max_headers);
    EXPECT_EQ(here.max_url_bytes, there.max_url_bytes);
    EXPECT_EQ(here.max_unsent_bytes, there.max_unsent_bytes);
    EXPECT_EQ(here.header_timeout_s, there.header_timeout_s);
    EXPECT_EQ(here.body_timeout_s, there.body_timeout_s);
    EXPECT_EQ(here.idle_timeout_s, there.idle_timeout_s);
    EXPECT_EQ(here.write_timeout_s, there.write_timeout_s);
}

// The index of what replicas hold is as large as their pools.
TEST(ConfigOptions, ReplicasAreChosenByPagesOfTheirPools) {
    const auto options = [](std::vector<std::pair<std::string, std::string>> overrides) {
        return frontend_options(demo(std::move(overrides)), "1").replica_choice;
    };
    const ReplicaChoiceOptions some = options({{"max-total-tokens", "4096"}, {"page-size", "32"}});
    EXPECT_EQ(some.page_size, 32);
    EXPECT_EQ(some.max_pages, 128);
    EXPECT_EQ(options({{"disable-radix-cache", "true"}}).max_pages, 0);
}

TEST(ConfigOptions, FormatsAreSetOrTheTemplates) {
    Settings settings;
    FrontendOptions options;
    ASSERT_TRUE(
        choose_formats(settings, "<think></think> thinking <｜tool▁call▁begin｜>", options).ok());
    EXPECT_EQ(options.model_info["tool_call_parser"], Json("deepseekv31"));
    EXPECT_EQ(options.model_info["reasoning_parser"], Json("deepseek-v3"));
    settings.tool_call_parser = "deepseekv3";
    settings.reasoning_parser = "deepseek-r1";
    ASSERT_TRUE(choose_formats(settings, "", options).ok());
    EXPECT_EQ(options.defaults.formats.tools, parse::ToolFormat::kDeepSeekV3);
    EXPECT_EQ(options.defaults.formats.reasoning, parse::ReasoningFormat::kDeepSeekR1);
    settings.reasoning_parser = "deepseekr1";
    EXPECT_EQ(choose_formats(settings, "", options).message(),
              "reasoning_parser is deepseekr1; expected one of deepseek-r1, deepseek-v3; did you "
              "mean deepseek-r1?");
}

}  // namespace
}  // namespace aerie::frontend
