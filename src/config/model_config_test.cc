#include "config/model_config.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/json.h"

namespace aerie {
namespace {

// A folder with one config.json, and a generation_config.json where that is not empty.
class ModelFolder {
  public:
    explicit ModelFolder(const Json& config, const std::string& generation = "") {
        std::string pattern = std::filesystem::temp_directory_path() / "aerie_model_XXXXXX";
        path_ = mkdtemp(pattern.data());
        std::ofstream(path_ + "/config.json") << config.dump(1);
        if (!generation.empty()) std::ofstream(path_ + "/generation_config.json") << generation;
    }
    ~ModelFolder() { std::filesystem::remove_all(path_); }
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

Json demo_json() { return *read_json_file("models/demo/config.json"); }

ModelConfig read(const Json& json, std::vector<std::string>& errors,
                 const std::string& generation = "") {
    const ModelFolder folder(json, generation);
    return read_model_config(folder.path(), errors);
}

TEST(ModelConfig, ReadsTheDemoModel) {
    std::vector<std::string> errors;
    const ModelConfig m = read_model_config("models/demo", errors);
    ASSERT_THAT(errors, testing::IsEmpty());
    EXPECT_EQ(m.model_type, "deepseek_v3");
    EXPECT_EQ(m.vocab_size, 8192);
    EXPECT_EQ(m.num_hidden_layers, 6);
    EXPECT_EQ(m.num_moe_layers(), 5);
    EXPECT_FALSE(m.is_moe(0));
    EXPECT_TRUE(m.is_moe(6));  // the MTP layer
    EXPECT_EQ(m.latent_dim(), 576);
    EXPECT_EQ(m.qk_head_dim(), 192);
    EXPECT_EQ(m.scoring_func, ScoringFunc::kSigmoid);
    EXPECT_EQ(m.topk_method, TopkMethod::kNoauxTc);
    ASSERT_TRUE(m.rope_scaling);
    EXPECT_EQ(m.rope_scaling->factor, 32);
    EXPECT_EQ(m.rope_scaling->original_max_position_embeddings, 1024);
    ASSERT_TRUE(m.quantization_config);
    EXPECT_FALSE(m.quantization_config->scale_ue8m0);
    EXPECT_EQ(m.eos_token_ids, std::vector<int>{1});
    EXPECT_EQ(m.bos_token_id, 0);
    EXPECT_EQ(m.generation.temperature, 0.6);
    EXPECT_EQ(m.generation.top_p, 0.95);
    EXPECT_EQ(m.generation.top_k, std::nullopt);
}

// model.md, section 2: factor 40 and mscale_all_dim 1 give m = 1.368888 and a scale of 0.135234.
TEST(ModelConfig, SoftmaxScaleOfV3) {
    ModelConfig m;
    m.qk_nope_head_dim = 128;
    m.qk_rope_head_dim = 64;
    EXPECT_NEAR(m.softmax_scale(), 1 / std::sqrt(192.0), 1e-12);
    m.rope_scaling = YarnScaling{.factor = 40, .mscale = 1, .mscale_all_dim = 1};
    EXPECT_NEAR(m.softmax_scale(), 0.135234, 1e-6);
}

TEST(ModelConfig, ReadsTheV2Variant) {
    Json json = demo_json();
    json.set("model_type", "deepseek_v2")
        .set("scoring_func", "softmax")
        .set("topk_method", "greedy");
    json.set("norm_topk_prob", false)
        .set("q_lora_rank", nullptr)
        .set("quantization_config", nullptr);
    json.set("n_group", 1).set("topk_group", 1).set("num_nextn_predict_layers", 0);
    json.set("rope_scaling", nullptr);
    std::vector<std::string> errors;
    const ModelConfig m = read(json, errors);
    EXPECT_THAT(errors, testing::IsEmpty());
    EXPECT_EQ(m.q_lora_rank, 0);
    EXPECT_EQ(m.scoring_func, ScoringFunc::kSoftmax);
    EXPECT_EQ(m.topk_method, TopkMethod::kGreedy);
    EXPECT_FALSE(m.norm_topk_prob);
    EXPECT_FALSE(m.quantization_config);
    EXPECT_FALSE(m.rope_scaling);
    EXPECT_EQ(m.num_nextn_predict_layers, 0);
}

TEST(ModelConfig, ReadsPowerOfTwoScalesAndModulesLeftOut) {
    Json json = demo_json();
    json.find("quantization_config")->set("scale_fmt", "ue8m0");
    json.find("quantization_config")->set("modules_to_not_convert", Json::Array{"lm_head"});
    std::vector<std::string> errors;
    const ModelConfig m = read(json, errors);
    EXPECT_THAT(errors, testing::IsEmpty());
    EXPECT_TRUE(m.quantization_config->scale_ue8m0);
    EXPECT_THAT(m.quantization_config->modules_to_not_convert, testing::ElementsAre("lm_head"));
}

TEST(ModelConfig, EndOfSequenceIsTheUnionOfBothFiles) {
    Json json = demo_json();
    json.set("eos_token_id", Json::Array{7, 3});
    std::vector<std::string> errors;
    const ModelConfig m =
        read(json, errors, R"({"eos_token_id": [5, 3], "top_k": 20, "min_p": 0.1})");
    EXPECT_THAT(errors, testing::IsEmpty());
    EXPECT_THAT(m.eos_token_ids, testing::ElementsAre(3, 5, 7));
    EXPECT_EQ(m.generation.top_k, 20);
    EXPECT_EQ(m.generation.min_p, 0.1);
}

TEST(ModelConfig, ReadsTheLanguageModelOfAMultimodalWrapper) {
    Json json = Json::object();
    json.set("model_type", "wrapper").set("text_config", demo_json()).set("eos_token_id", 9);
    json.find("text_config")->set("eos_token_id", nullptr);
    std::vector<std::string> errors;
    const ModelConfig m = read(json, errors);
    EXPECT_THAT(errors, testing::IsEmpty());
    EXPECT_EQ(m.hidden_size, 256);
    EXPECT_THAT(m.eos_token_ids, testing::ElementsAre(9));
}

struct Unsupported {
    const char* field;
    Json value;
    const char* message;
};

class Refused : public testing::TestWithParam<Unsupported> {};

TEST_P(Refused, NamesTheField) {
    Json json = demo_json();
    json.set(GetParam().field, GetParam().value);
    std::vector<std::string> errors;
    read(json, errors);
    ASSERT_EQ(errors.size(), 1u) << testing::PrintToString(errors);
    EXPECT_THAT(errors[0], testing::AllOf(testing::HasSubstr("config.json"),
                                          testing::HasSubstr(GetParam().message)));
}

Json object(const char* text) { return *Json::parse(text); }

INSTANTIATE_TEST_SUITE_P(
    ModelConfig, Refused,
    testing::Values(
        Unsupported{"hidden_act", "gelu", "hidden_act: found \"gelu\", expected supported: silu"},
        Unsupported{"scoring_func", "tanh", "scoring_func: found \"tanh\""},
        Unsupported{"topk_method", "best", "topk_method: found \"best\""},
        Unsupported{"topk_method", "greedy", "a greedy method with scoring_func \"sigmoid\""},
        Unsupported{"attention_bias", true, "attention_bias: found true"},
        Unsupported{"torch_dtype", "int8", "torch_dtype: found \"int8\""},
        Unsupported{"moe_layer_freq", 2, "moe_layer_freq: found 2"},
        Unsupported{"num_nextn_predict_layers", 2, "num_nextn_predict_layers: found 2"},
        Unsupported{"index_topk", 2048, "index_topk"},
        Unsupported{"hidden_size", "wide", "hidden_size: found \"wide\", expected a whole number"},
        Unsupported{"hidden_size", nullptr, "hidden_size: found nothing"},
        Unsupported{"num_hidden_layers", 2.5, "num_hidden_layers: found 2.5"},
        Unsupported{"kv_lora_rank", nullptr, "a model of DeepSeek-V3's class"},
        Unsupported{"n_group", 5, "n_group: found 5, expected a divisor of n_routed_experts = 32"},
        Unsupported{"topk_group", 8, "topk_group: found 8, expected at most n_group = 4"},
        Unsupported{"num_experts_per_tok", 17, "at most the 16 experts of topk_group groups"},
        Unsupported{"first_k_dense_replace", 7, "at most num_hidden_layers = 6"},
        Unsupported{"eos_token_id", "end", "eos_token_id: found \"end\""},
        Unsupported{"eos_token_id", 8192, "eos_token_id: found 8192, expected token ids below"},
        Unsupported{"architectures", object(R"(["LlamaForCausalLM"])"),
                    "architectures: found [\"LlamaForCausalLM\"]"},
        Unsupported{"rope_scaling", object(R"({"type": "linear", "factor": 2})"),
                    "rope_scaling.type: found \"linear\", expected supported: yarn"},
        Unsupported{"rope_scaling", object(R"({"type": "yarn", "factor": 2})"),
                    "rope_scaling: original_max_position_embeddings: found nothing"},
        Unsupported{"quantization_config", object(R"({"quant_method": "awq",
                                                      "weight_block_size": [128, 128]})"),
                    "quantization_config: quant_method: found \"awq\""},
        Unsupported{"quantization_config", object(R"({"quant_method": "fp8"})"),
                    "weight_block_size: found nothing, expected [128, 128]"}));

TEST(ModelConfig, ReportsEveryProblem) {
    Json json = demo_json();
    json.set("hidden_act", "gelu").set("vocab_size", 0).set("attention_bias", true);
    std::vector<std::string> errors;
    read(json, errors, "{\"top_p\": 3}");
    EXPECT_EQ(errors.size(), 4u) << testing::PrintToString(errors);
}

TEST(ModelConfig, AMissingFolderIsAnError) {
    std::vector<std::string> errors;
    read_model_config("models/nowhere", errors);
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_THAT(errors[0], testing::HasSubstr("models/nowhere/config.json"));
}

}  // namespace
}  // namespace aerie
