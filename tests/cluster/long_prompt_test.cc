// Prompts of 32,000 and 40,000 tokens with a fact to find: prefill and decode apart, with the context
// split over two ranks, give the bits of one replica that does both.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "golden.h"
#include "in_process_cluster.h"
#include "tokenizer/tokenizer.h"

namespace aerie::cluster_tests {
namespace {

const std::string kModel = AERIE_SOURCE_DIR "/models/demo";

// The demo model with YaRN stretched: its folder, with another config.json.
std::string stretched_model(int context) {
    namespace fs = std::filesystem;
    const fs::path folder = fs::path(testing::TempDir()) / fmt::format("aerie-yarn-{}-{}", context, getpid());
    fs::remove_all(folder);
    fs::create_directories(folder);
    for (const auto& entry : fs::directory_iterator(kModel)) {
        if (entry.path().filename() != "config.json") {
            fs::create_symlink(entry.path(), folder / entry.path().filename());
        }
    }
    Json config = *read_json_file(kModel + "/config.json");
    Json scaling = config["rope_scaling"];
    const int64_t original = scaling["original_max_position_embeddings"].as_int();
    scaling.set("factor", static_cast<double>(context) / static_cast<double>(original));
    config.set("rope_scaling", std::move(scaling)).set("max_position_embeddings", context);
    std::ofstream(folder / "config.json") << config.dump();
    return folder;
}

// A question about a fact that stands at `depth` (0 … 1) of a text of num_tokens tokens in all. The
// rest of the text is that of the long goldens, over and over.
std::vector<int32_t> long_prompt(const Tokenizer& tokenizer, int num_tokens, double depth) {
    const auto begin = tokenizer.encode("<｜begin▁of▁sentence｜><｜User｜>");
    const auto fact = tokenizer.encode("\nThe access code of the golden lantern is 48213.\n");
    const auto end = tokenizer.encode(
        "\n\nWhat is the access code of the golden lantern?<｜Assistant｜></think>");
    std::vector<int32_t> filler;
    for (const int golden : {3, 2, 1}) {  // the first holds the same fact
        const auto prompt = read_goldens("golden_long.json")[golden].prompt;
        filler.insert(filler.end(), prompt.begin() + 2, prompt.end() - 40);  // without its question
    }
    const int num_filler = num_tokens - static_cast<int>(begin.size() + fact.size() + end.size());
    std::vector<int32_t> prompt = begin;
    for (int i = 0; i < num_filler; ++i) {
        if (i == static_cast<int>(depth * num_filler)) {
            prompt.insert(prompt.end(), fact.begin(), fact.end());
        }
        prompt.push_back(filler[static_cast<size_t>(i) % filler.size()]);
    }
    prompt.insert(prompt.end(), end.begin(), end.end());
    return prompt;
}

struct Case {
    int num_tokens;
    int context;  // of the model
    double depth;
    bool absorbed;  // the form of prefill; the longest one runs with the faster
};

ClusterSpec spec_of(const Case& c, const std::string& model, bool separated) {
    const std::string parallel = "[parallel]\nattention_cp = 2\n";
    const std::string settings = fmt::format(
        R"({{"cp_size": 2, "chunked_prefill_size": 2048, "max_total_tokens": {},
             "enable_deterministic_inference": {}}})",
        c.context + 1024, c.absorbed);
    ClusterSpec spec{.settings = settings, .model = model, .limit_s = 800};
    if (!separated) {
        spec.toml = "[cluster]\ngpus_per_node = 2\n" + parallel + "[ae_separation]\nenabled = false\n";
        return spec;
    }
    spec.toml = R"([cluster]
nodes = 3
gpus_per_node = 2
[ae_separation]
enabled = true
prefill_nodes = ["node-0"]
decode_attention_nodes = ["node-1"]
decode_nodes = ["node-2"]
kv_transfer = "active"
)" + parallel + "expert_dp = 2\n";
    return spec;
}

class LongPrompts : public testing::TestWithParam<Case> {};

TEST_P(LongPrompts, FindTheFactAndEqualTheColocatedRun) {
    const Case& c = GetParam();
    auto loaded = Tokenizer::load(kModel);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    const Tokenizer& tokenizer = **loaded;
    const std::string model = c.context > 32768 ? stretched_model(c.context) : kModel;
    const auto request = greedy(long_prompt(tokenizer, c.num_tokens, c.depth), 16, true);
    ASSERT_EQ(static_cast<int>(request.prompt.size()), c.num_tokens);
    std::vector<Outcome> outcomes;
    for (const bool separated : {false, true}) {
        Cluster cluster(spec_of(c, model, separated));
        outcomes.push_back(cluster.run({request})[0]);
        ASSERT_EQ(outcomes.back().error, "");
        EXPECT_EQ(cluster.metric("sglang:ae_sep_kv_transfer_bytes"),
                  separated ? c.num_tokens * 6.0 * 576 * 2 : 0);
        cluster.expect_idle();
    }
    EXPECT_EQ(outcomes[0], outcomes[1]);
    const std::string answer = tokenizer.decode(outcomes[1].tokens, true);
    EXPECT_NE(answer.find("48213"), std::string::npos) << answer;
    if (model != kModel) std::filesystem::remove_all(model);
}
INSTANTIATE_TEST_SUITE_P(Tokens, LongPrompts,
                         testing::Values(Case{32000, 32768, 0.4, true}, Case{40000, 40960, 0.4, false}),
                         [](const auto& info) { return std::to_string(info.param.num_tokens); });

}  // namespace
}  // namespace aerie::cluster_tests
