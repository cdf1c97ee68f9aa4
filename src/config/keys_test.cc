#include "config/keys.h"

#include <set>

#include "config/nearest.h"
#include "config/sglang_keys.h"

namespace aerie {
namespace {

TEST(Keys, AreUniqueAndTakeTheirOwnDefaults) {
    std::set<std::pair<std::string, std::string>> seen;
    for (const ConfigKey& key : config_keys()) {
        EXPECT_TRUE(seen.insert({key.section, key.name}).second) << key.label();
        EXPECT_STRNE(key.meaning, "") << key.label();
        Config config;
        const Json value = key.get(config);
        if (value.is_null()) {
            EXPECT_STRNE(key.unset, "") << key.label() << " has no word for no value";
        } else {
            EXPECT_TRUE(key.set(key, config, value).ok()) << key.label();
            EXPECT_EQ(key.get(config), value) << key.label();
        }
    }
}

TEST(Keys, RefuseValuesOfAnotherType) {
    for (const ConfigKey& key : config_keys()) {
        Config config;
        const bool wants_table = std::string_view(key.type) == "table";
        const Json wrong = wants_table ? Json(1) : Json::object();
        const Status status = key.set(key, config, wrong);
        ASSERT_FALSE(status.ok()) << key.label();
        EXPECT_THAT(status.message(), testing::HasSubstr(key.expected()));
    }
}

// A key of ours that were in SGLang's list, too, would never be reached there.
TEST(Keys, AreNotAlsoKeysWithoutMeaning) {
    for (const ConfigKey& key : config_keys()) {
        EXPECT_FALSE(is_sglang_key(key.name)) << key.label();
    }
    EXPECT_TRUE(is_sglang_key("trust_remote_code"));
    EXPECT_FALSE(is_sglang_key("trust_remote_cod"));
}

TEST(Keys, PairsShareAFlag) {
    const auto flag = [](const char* section, const char* name) {
        return std::string(find_key(section, name)->flag);
    };
    EXPECT_EQ(flag("", "tp_size"), flag("parallel", "attention_tp"));
    EXPECT_EQ(flag("", "cp_size"), flag("parallel", "attention_cp"));
    EXPECT_EQ(flag("", "ep_size"), flag("parallel", "expert_ep"));
    EXPECT_EQ(flag("", "dp_size"), flag("parallel", "global_dp"));
    EXPECT_EQ(flag("", "enable_ae_separation"), flag("ae_separation", "enabled"));
    EXPECT_EQ(flag("", "model_path"), flag("model", "path"));
    EXPECT_EQ(flag("", "page_size"), "page-size");
    EXPECT_EQ(resolve_flag_alias("tp"), "tp-size");
    EXPECT_EQ(resolve_flag_alias("page-size"), "page-size");
}

TEST(Keys, AreDescribedAndPrintedWithoutSecrets) {
    Config config;
    config.settings.api_key = "hunter2";
    const std::string printed = print_config(config), json = config_to_json(config).dump();
    for (const ConfigKey& key : config_keys()) {
        EXPECT_THAT(printed, testing::HasSubstr(fmt::format("  {} = ", key.name)));
        EXPECT_THAT(describe_keys(), testing::HasSubstr(key.label() + ": "));
    }
    EXPECT_THAT(printed, testing::HasSubstr("api_key = ***"));
    EXPECT_THAT(printed + json, testing::Not(testing::HasSubstr("hunter2")));
}

TEST(Keys, FingerprintCountsOnlyWhatMustAgree) {
    Config a, b;
    EXPECT_EQ(config_fingerprint(a), config_fingerprint(b));
    b.settings.log_level = LogLevel::kDebug;
    b.server.port = 1;
    b.node_rank = 3;
    b.settings.ssl_certfile = "/c.pem";
    b.settings.http.max_headers = 9;
    b.settings.requests.max_n = 9;
    EXPECT_EQ(config_fingerprint(a), config_fingerprint(b));
    b.settings.page_size = 32;
    EXPECT_NE(config_fingerprint(a), config_fingerprint(b));
}

TEST(Nearest, CountsEdits) {
    EXPECT_EQ(edit_distance("tp_size", "tp_size"), 0);
    EXPECT_EQ(edit_distance("tp-Size", "tp_size"), 0);
    EXPECT_EQ(edit_distance("tp_szie", "tp_size"), 1);  // neighbours swapped
    EXPECT_EQ(edit_distance("", "abc"), 3);
    EXPECT_EQ(nearest("pagesize", {"page_size", "tp_size"}), "page_size");
    EXPECT_EQ(nearest("quantum", {"page_size", "tp_size"}), "");
    EXPECT_EQ(did_you_mean("nod-1", {"node-0", "node-1"}), "; did you mean node-1?");
}

}  // namespace
}  // namespace aerie
