#include "config/load.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "config/command_line.h"
#include "config/environment.h"

namespace aerie {
namespace {

constexpr Machine kMachine{.num_gpus = 0, .memory_free = int64_t{8} << 30, .gpu_memory = 0};

constexpr const char* kToml = R"([cluster]
nodes = 2
gpus_per_node = 2
[parallel]
attention_tp = 2
expert_ep = 2
[ae_separation]
enabled = true
prefill_nodes = ["node-0"]
decode_nodes = ["node-1"]
[model]
path = "models/demo"
max_seq_len = 4096
)";
constexpr const char* kJson =
    R"({"tp_size": 2, "ep_size": 2, "enable_ae_separation": true, "max_queued_requests": null})";

// Variables that say which node this is; cleared, so that the machine's own say nothing.
constexpr const char* kVariables[] = {"NODE_RANK",
                                      "GROUP_RANK",
                                      "MASTER_ADDR",
                                      "MASTER_PORT",
                                      "SLURM_NODEID",
                                      "SLURM_NNODES",
                                      "SLURM_JOB_NUM_NODES",
                                      "SLURM_LAUNCH_NODE_IPADDR",
                                      "JOB_COMPLETION_INDEX",
                                      "KUBERNETES_SERVICE_HOST",
                                      "HOSTNAME"};

class Load : public testing::Test {
  protected:
    void SetUp() override {
        for (const char* name : kVariables) unsetenv(name);
        std::string pattern = std::filesystem::temp_directory_path() / "aerie_load_XXXXXX";
        folder_ = mkdtemp(pattern.data());
    }
    void TearDown() override {
        std::filesystem::remove_all(folder_);
        for (const char* name : kVariables) unsetenv(name);
    }
    std::string write(const char* name, const std::string& text) const {
        std::ofstream(folder_ + "/" + name) << text;
        return folder_ + "/" + name;
    }
    LoadedConfig load(std::vector<std::string> arguments, const char* json = kJson,
                      const char* toml = kToml) const {
        std::vector<std::string> all;
        if (json != nullptr) all = {"--config", write("settings.json", json)};
        if (toml != nullptr) {
            all.insert(all.end(), {"--ae-config", write("config.toml", toml)});
        }
        all.insert(all.end(), arguments.begin(), arguments.end());
        const ParsedArguments parsed = parse_command_line("serve", all);
        EXPECT_THAT(parsed.diagnostics.errors, testing::IsEmpty());
        LoadedConfig loaded = load_config(parsed.command_line, kMachine);
        for (const auto& line : parsed.diagnostics.warnings) {
            loaded.diagnostics.warnings.push_back(line);
        }
        return loaded;
    }
    static std::string all(const std::vector<std::string>& lines) {
        std::string text;
        for (const std::string& line : lines) text += line + "\n";
        return text;
    }

  private:
    std::string folder_;
};

TEST_F(Load, FillsEveryDefaultAndDerivedValue) {
    const LoadedConfig l = load({});
    ASSERT_TRUE(l.diagnostics.ok()) << all(l.diagnostics.errors);
    EXPECT_THAT(l.diagnostics.warnings, testing::IsEmpty());
    const Config& c = l.config;
    EXPECT_EQ(c.settings.model_path, "models/demo");
    EXPECT_EQ(c.settings.tokenizer_path, "models/demo");
    EXPECT_EQ(c.settings.served_model_name, "demo");
    EXPECT_EQ(c.settings.context_length, 4096);
    EXPECT_EQ(c.settings.enable_deterministic_inference, true);
    EXPECT_EQ(c.settings.attention_backend, AttentionBackend::kCpu);
    EXPECT_EQ(c.ae_separation.decode_tp, 2);
    EXPECT_EQ(c.ae_separation.comm_backend, CommBackend::kUcx);
    EXPECT_EQ(c.ae_separation.kv_backend, CommBackend::kUcx);
    EXPECT_EQ(c.device, DeviceChoice::kCpu);
    EXPECT_EQ(l.model.vocab_size, 8192);
    EXPECT_EQ(l.placement.replicas.size(), 2u);
    EXPECT_EQ(l.memory.replicas.size(), 2u);
    EXPECT_EQ(nodes_here(c), (std::vector<int>{0, 1}));
}

TEST_F(Load, TheCommandLineBeatsBothFilesAndSetsPairs) {
    const LoadedConfig l = load({"--tp-size", "1", "--global-dp=2", "--page-size", "128",
                                 "--microbatches", "2", "--max-seq-len", "1024"});
    ASSERT_TRUE(l.diagnostics.ok()) << all(l.diagnostics.errors);
    EXPECT_EQ(l.config.settings.tp_size, 1);
    EXPECT_EQ(l.config.parallel.attention_tp, 1);
    EXPECT_EQ(l.config.settings.dp_size, 2);
    EXPECT_EQ(l.config.parallel.global_dp, 2);
    EXPECT_EQ(l.config.settings.page_size, 128);
    EXPECT_EQ(l.config.ae_separation.microbatches, 2);
    EXPECT_EQ(l.config.settings.context_length, 1024);
}

TEST_F(Load, OneFlagTurnsSeparationOff) {
    const LoadedConfig l = load({"--enable-ae-separation", "false"});
    ASSERT_TRUE(l.diagnostics.ok()) << all(l.diagnostics.errors);
    EXPECT_FALSE(l.config.separated());
    EXPECT_FALSE(l.config.settings.enable_ae_separation);
    EXPECT_EQ(l.placement.replicas.size(), 2u);
    EXPECT_EQ(l.placement.copies.size(), 2u);
}

struct AliasCase {
    std::vector<std::string> arguments;
    int tp, dp, ep;
};

TEST_F(Load, SglangsLaunchLineWorks) {
    for (const AliasCase& one : std::vector<AliasCase>{
             {{"--model", "models/demo", "--tp", "2", "--dp", "2", "--ep", "4"}, 2, 2, 4},
             {{"--model-path=models/demo", "--tensor-parallel-size=2", "--data-parallel-size=2",
               "--expert-parallel-size=4"},
              2,
              2,
              4},
             {{"--model", "models/demo", "--trust-remote-code", "--cuda-graph-max-bs", "64",
               "--attention-backend", "fa3", "--disable-radix-cache", "--chunked-prefill-size",
               "-1", "--mem-fraction-static", "0.5", "--nnodes", "1", "--node-rank", "0",
               "--dist-init-addr", "localhost:5000"},
              1,
              1,
              1}}) {
        const LoadedConfig l = load(one.arguments, nullptr, nullptr);
        ASSERT_TRUE(l.diagnostics.ok()) << all(l.diagnostics.errors);
        EXPECT_EQ(l.config.parallel.attention_tp, one.tp);
        EXPECT_EQ(l.config.parallel.global_dp, one.dp);
        EXPECT_EQ(l.config.parallel.expert_ep, one.ep);
        EXPECT_EQ(std::ssize(l.placement.replicas), one.dp);
    }
}

TEST_F(Load, SglangsKeysWithoutMeaningAreWarnedAbout) {
    const LoadedConfig l = load(
        {"--disable-cuda-graph"},
        R"({"tp_size": 2, "ep_size": 2, "enable_ae_separation": true, "trust_remote_code": true})");
    ASSERT_TRUE(l.diagnostics.ok()) << all(l.diagnostics.errors);
    const std::string warnings = all(l.diagnostics.warnings);
    EXPECT_THAT(warnings,
                testing::HasSubstr("trust_remote_code is a key of SGLang that has no meaning"));
    EXPECT_THAT(warnings, testing::HasSubstr("--disable-cuda-graph is a flag of SGLang"));
}

TEST_F(Load, TheUrlsLimitIsNoMoreThanTheHeaders) {
    const LoadedConfig l = load({"--http-max-header-kb", "8"});
    EXPECT_THAT(l.diagnostics.errors, testing::IsEmpty());
    EXPECT_EQ(l.config.settings.http.max_url_kb, 8);
    const LoadedConfig both = load({"--http-max-header-kb", "8", "--http-max-url-kb", "16"});
    EXPECT_THAT(both.diagnostics.errors, testing::SizeIs(1));
}

TEST_F(Load, SwitchesMayStandAloneOrTakeAWord) {
    const LoadedConfig alone = load({"--disable-radix-cache", "--enable-metrics", "false"});
    EXPECT_TRUE(alone.config.settings.disable_radix_cache);
    EXPECT_FALSE(alone.config.settings.enable_metrics);
    const LoadedConfig word = load({"--enable-deterministic-inference"});
    EXPECT_TRUE(word.diagnostics.ok()) << all(word.diagnostics.errors);
    EXPECT_EQ(word.config.settings.enable_deterministic_inference, true);
    EXPECT_EQ(load({"--enable-deterministic-inference", "auto"}).diagnostics.errors.size(), 0u);
}

TEST_F(Load, TheLastOfARepeatedFlagCounts) {
    EXPECT_EQ(load({"--page-size", "16", "--page-size", "32"}).config.settings.page_size, 32);
}

TEST_F(Load, WhatPlaysNoPartIsSaid) {
    const LoadedConfig l = load({"--kv-transfer", "active", "--kv-lease-s", "5"});
    ASSERT_TRUE(l.diagnostics.ok()) << all(l.diagnostics.errors);
    const std::string warnings = all(l.diagnostics.warnings);
    EXPECT_THAT(warnings, testing::HasSubstr("nothing is leased; it plays no part"));
}

TEST_F(Load, TheFileOfEvictedKvNeedsAFolderAndASizeThatFitsThere) {
    const auto errors = [&](std::vector<std::string> flags) {
        return all(load(std::move(flags)).diagnostics.errors);
    };
    EXPECT_EQ(errors({"--hicache-path", "/tmp", "--hicache-file-size-gb", "0.001"}), "");
    const struct {
        std::vector<std::string> flags;
        const char* text;
    } cases[] = {
        {{"--hicache-path", "/tmp"}, "hicache_file_size_gb = 0.0 (default, not given); expected a folder and"},
        {{"--hicache-file-size-gb", "1"}, "expected a folder and a size above 0, or neither"},
        {{"--hicache-path", "/nowhere", "--hicache-file-size-gb", "1"},
         "hicache_path = \"/nowhere\": No such file or directory; expected a folder"},
        {{"--hicache-path", "/dev/null", "--hicache-file-size-gb", "1"}, "is no folder"},
        {{"--hicache-path", "/proc", "--hicache-file-size-gb", "1"}, "; expected "},
        {{"--hicache-path", "/tmp", "--hicache-file-size-gb", "900000"}, "GB free; expected less"},
    };
    for (const auto& [flags, text] : cases) {
        EXPECT_THAT(errors(flags), testing::HasSubstr(text)) << flags[1];
    }
    EXPECT_THAT(all(load({"--hicache-path", "/nowhere", "--hicache-file-size-gb", "1",
                          "--disable-radix-cache"})
                        .diagnostics.warnings),
                testing::HasSubstr("hicache_path = \"/nowhere\": it plays no part"));
}

TEST_F(Load, EachNetworkBackendIsChosenByItself) {
    const LoadedConfig both = load({"--comm-backend", "gloo"});
    ASSERT_TRUE(both.diagnostics.ok()) << all(both.diagnostics.errors);
    EXPECT_EQ(both.config.ae_separation.comm_backend, CommBackend::kGloo);
    EXPECT_EQ(both.config.ae_separation.kv_backend, CommBackend::kGloo);
    const LoadedConfig one = load({"--comm-backend", "gloo", "--kv-backend", "ucx"});
    ASSERT_TRUE(one.diagnostics.ok()) << all(one.diagnostics.errors);
    EXPECT_EQ(one.config.ae_separation.comm_backend, CommBackend::kGloo);
    EXPECT_EQ(one.config.ae_separation.kv_backend, CommBackend::kUcx);
}

TEST_F(Load, MoreCardsThanTheFabricNumbersAreRefused) {
    EXPECT_THAT(all(load({"--gpus-per-node", "1024"}).diagnostics.errors),
                testing::HasSubstr("cards; expected at most 1020"));
}

TEST_F(Load, NcclRunsAsUcxOnlyWhenTheCpuWasAskedFor) {
    const LoadedConfig asked = load({"--comm-backend", "nccl", "--device", "cpu"});
    EXPECT_TRUE(asked.diagnostics.ok()) << all(asked.diagnostics.errors);
    EXPECT_EQ(asked.config.ae_separation.comm_backend, CommBackend::kUcx);
    EXPECT_THAT(all(asked.diagnostics.warnings),
                testing::HasSubstr("with --device cpu ucx is used"));
    EXPECT_FALSE(load({"--comm-backend", "nccl"}).diagnostics.ok());
    // Cards that are only supposed need none.
    const ParsedArguments parsed =
        parse_command_line("check", {"--model", "models/demo", "--comm-backend", "nccl"});
    CommandLine line = parsed.command_line;
    line.card_memory = int64_t{141} << 30;
    const LoadedConfig supposed = load_config(line, kMachine);
    EXPECT_TRUE(supposed.diagnostics.ok()) << all(supposed.diagnostics.errors);
    EXPECT_EQ(supposed.config.settings.enable_deterministic_inference, false);
}

TEST_F(Load, IdleNodesAndRequestsThatNeverFitAreWarnedAbout) {
    const std::string toml =
        std::string(kToml).replace(std::string(kToml).find("nodes = 2"), 9, "nodes = 3");
    const LoadedConfig l = load({"--max-total-tokens", "1024"}, kJson, toml.c_str());
    ASSERT_TRUE(l.diagnostics.ok()) << all(l.diagnostics.errors);
    const std::string warnings = all(l.diagnostics.warnings);
    EXPECT_THAT(warnings, testing::HasSubstr("node-2 has no role"));
    EXPECT_THAT(warnings, testing::HasSubstr("a request longer than 960 tokens can never run"));
}

TEST_F(Load, PathsOfOneFolderAgree) {
    const LoadedConfig l = load(
        {},
        R"({"model_path": "./models/demo/", "tp_size": 2, "ep_size": 2, "enable_ae_separation": true})");
    EXPECT_TRUE(l.diagnostics.ok()) << all(l.diagnostics.errors);
    EXPECT_EQ(l.config.settings.served_model_name, "demo");
}

TEST_F(Load, HostsAreOrderedByNumberAndFoundOnThisMachine) {
    std::string toml = "[cluster.hosts]\n";
    for (int node = 0; node < 12; ++node) {
        toml += fmt::format("node-{} = \"{}\"\n", node, node == 10 ? "127.0.0.1" : "192.0.2.1");
    }
    toml += "[model]\npath = \"models/demo\"\n";
    const LoadedConfig l = load({}, "{}", toml.c_str());
    ASSERT_TRUE(l.diagnostics.ok()) << all(l.diagnostics.errors);
    EXPECT_EQ(l.config.cluster.nodes, 12);
    EXPECT_EQ(l.config.cluster.hosts[2].first, "node-2");
    EXPECT_EQ(l.config.cluster.hosts[10].first, "node-10");
    EXPECT_EQ(nodes_here(l.config), std::vector<int>{10});
}

struct EnvironmentCase {
    const char* name;
    std::vector<std::pair<const char*, const char*>> variables;
    std::optional<int> node_rank;
    std::string rendezvous;
};

TEST_F(Load, TheEnvironmentSaysWhichNodeThisIs) {
    const std::vector<EnvironmentCase> cases = {
        {"nothing", {}, std::nullopt, ""},
        {"torch", {{"NODE_RANK", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "77"}}, 1, "a:77"},
        {"torchrun", {{"GROUP_RANK", "1"}, {"MASTER_ADDR", "a"}}, 1, "a:29500"},
        {"slurm",
         {{"SLURM_NODEID", "1"}, {"SLURM_NNODES", "2"}, {"SLURM_LAUNCH_NODE_IPADDR", "b"}},
         1,
         "b:29500"},
        {"slurm of one node", {{"SLURM_NODEID", "0"}, {"SLURM_NNODES", "1"}}, std::nullopt, ""},
        {"job", {{"JOB_COMPLETION_INDEX", "1"}, {"MASTER_ADDR", "c"}}, 1, "c:29500"},
        {"pod",
         {{"KUBERNETES_SERVICE_HOST", "k"}, {"HOSTNAME", "x-1"}, {"MASTER_ADDR", "d"}},
         1,
         "d:29500"},
        {"any pod", {{"KUBERNETES_SERVICE_HOST", "k"}, {"HOSTNAME", "x-1"}}, std::nullopt, ""},
        {"no number", {{"NODE_RANK", "first"}}, std::nullopt, ""},
    };
    for (const EnvironmentCase& one : cases) {
        for (const char* name : kVariables) unsetenv(name);
        for (const auto& [name, value] : one.variables) setenv(name, value, 1);
        const LoadedConfig l = load({});
        EXPECT_TRUE(l.diagnostics.ok()) << one.name << ": " << all(l.diagnostics.errors);
        EXPECT_EQ(l.config.node_rank, one.node_rank) << one.name;
        EXPECT_EQ(l.config.rendezvous, one.rendezvous) << one.name;
    }
    setenv("NODE_RANK", "1", 1);
    setenv("MASTER_ADDR", "a", 1);
    const LoadedConfig flags = load({"--node-rank", "0", "--rendezvous", "z:1"});
    EXPECT_EQ(flags.config.node_rank, 0);
    EXPECT_EQ(flags.config.rendezvous, "z:1");
}

TEST_F(Load, CardMemoryIsSharedByTheCardsOfThisMachine) {
    Config config;
    config.cluster.nodes = 4;
    config.cluster.gpus_per_node = 8;
    EXPECT_EQ(card_memory(config, kMachine), kMachine.memory_free / 32);
    config.node_rank = 2;
    EXPECT_EQ(card_memory(config, kMachine), kMachine.memory_free / 8);
}

TEST_F(Load, AGpuIsDividedEvenlyAmongTheHostsThatShareIt) {
    Config config;
    config.device = DeviceChoice::kCuda;
    config.share_cards = true;
    config.cluster.nodes = 3;
    config.cluster.gpus_per_node = 1;
    const Machine machine{.num_gpus = 2, .gpu_memory = int64_t{120} << 30};
    EXPECT_EQ(card_memory(config, machine), machine.gpu_memory / 3);
    config.share_cards = false;
    EXPECT_EQ(card_memory(config, machine), machine.gpu_memory);
}

TEST(PortRange, IsTwoPortsInOrder) {
    EXPECT_EQ(parse_port_range("31000-31099"), std::pair(31000, 31099));
    for (const char* text : {"", "31000", "31000-", "-5", "2-1", "0-5", "1-70000", "1-2x", "a-b"}) {
        EXPECT_EQ(parse_port_range(text), std::nullopt) << text;
    }
}

}  // namespace
}  // namespace aerie
