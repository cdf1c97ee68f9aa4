// Shapes of the class that the demo checkpoint does not have, against the plain arithmetic.
#include "model/testing/golden.h"
#include "model/testing/plain_model.h"
#include "model/testing/replica.h"

namespace aerie::model {
namespace {

// As small as a model of the class can be.
ModelConfig small_model() {
    ModelConfig c;
    c.vocab_size = 101;
    c.hidden_size = 96;
    c.intermediate_size = 160;
    c.moe_intermediate_size = 48;
    c.num_hidden_layers = 3;
    c.num_nextn_predict_layers = 1;
    c.first_k_dense_replace = 1;
    c.max_position_embeddings = 256;
    c.num_attention_heads = 4;
    c.q_lora_rank = 80;
    c.kv_lora_rank = 64;
    c.qk_nope_head_dim = 32;
    c.qk_rope_head_dim = 32;
    c.v_head_dim = 48;
    c.n_routed_experts = 12;
    c.num_experts_per_tok = 3;
    c.n_shared_experts = 1;
    c.n_group = 4;
    c.topk_group = 2;
    c.routed_scaling_factor = 2.5;
    return c;
}

struct Variant {
    const char* name;
    void (*change)(ModelConfig&);
};
const Variant kVariants[] = {
    {"as_V3", [](ModelConfig&) {}},
    {"fp8", [](ModelConfig& c) { c.quantization_config = Fp8Quantization{}; }},
    {"fp8_of_ragged_blocks",
     [](ModelConfig& c) {
         c.quantization_config = Fp8Quantization{};
         c.hidden_size = 160;
         c.q_lora_rank = 144;
         c.v_head_dim = 80;
         c.moe_intermediate_size = 136;
     }},
    {"no_q_lora", [](ModelConfig& c) { c.q_lora_rank = 0; }},
    {"no_q_lora_fp8",
     [](ModelConfig& c) {
         c.q_lora_rank = 0;
         c.quantization_config = Fp8Quantization{};
     }},
    {"as_Moonlight",
     [](ModelConfig& c) {
         c.q_lora_rank = 0;
         c.n_shared_experts = 2;
         c.n_group = c.topk_group = 1;
     }},
    {"as_V2_Lite",
     [](ModelConfig& c) {
         c.q_lora_rank = 0;
         c.n_shared_experts = 2;
         c.n_group = c.topk_group = 1;
         c.scoring_func = ScoringFunc::kSoftmax;
         c.topk_method = TopkMethod::kGreedy;
         c.norm_topk_prob = false;
         c.routed_scaling_factor = 1;
     }},
    {"as_V2",
     [](ModelConfig& c) {
         c.scoring_func = ScoringFunc::kSoftmax;
         c.topk_method = TopkMethod::kGroupLimitedGreedy;
         c.norm_topk_prob = false;
         c.routed_scaling_factor = 16;
     }},
    {"no_shared_expert", [](ModelConfig& c) { c.n_shared_experts = 0; }},
    {"all_dense", [](ModelConfig& c) { c.first_k_dense_replace = 3; }},
    {"all_MoE", [](ModelConfig& c) { c.first_k_dense_replace = 0; }},
    {"tied_embeddings", [](ModelConfig& c) { c.tie_word_embeddings = true; }},
    {"yarn",
     [](ModelConfig& c) {
         c.rope_scaling = YarnScaling{.factor = 4,
                                      .original_max_position_embeddings = 64,
                                      .mscale = 0.7,
                                      .mscale_all_dim = 1};
     }},
};

class Variants : public testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(, Variants, testing::ValuesIn(kVariants),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Variants, AgreeWithThePlainModelInEverySplit) {
    ModelConfig config = small_model();
    GetParam().change(config);
    std::vector<int32_t> tokens;
    for (int i = 0; i < 21; ++i) tokens.push_back((i * i * 7 + 3) % config.vocab_size);

    auto source = make_dummy_source(5, config.quantization_config.has_value());
    PlainModel plain(config, *source);
    PlainModel::Rows hidden = plain.hidden(tokens);
    const std::vector<float> logits_of_plain = plain.logits(hidden);
    const std::vector<double> expected(logits_of_plain.begin(), logits_of_plain.end());
    hidden.insert(hidden.begin(), std::vector<double>(hidden[0].size()));
    hidden.pop_back();
    const std::vector<float> drafts_of_plain = plain.logits(plain.mtp_hidden(tokens, hidden));
    const std::vector<double> expected_drafts(drafts_of_plain.begin(), drafts_of_plain.end());
    for (const auto& [tp, cp] : {std::pair{1, 1}, {2, 2}}) {
        for (DType compute : {DType::kF32, DType::kBF16}) {
            auto model = TestModel::dummy(config, {.compute = compute}, 5);
            auto replica = TestReplica::create(
                *model,
                {.tp_size = tp, .cp_size = cp, .ep_size = 5, .page_size = 4, .mtp = true});
            ASSERT_TRUE(replica.ok()) << replica.message();
            std::vector<float> logits;
            const int sequence = (*replica)->add_sequence(tokens);
            ASSERT_TRUE((*replica)->prefill(sequence, 8, true, logits, {3}).ok());
            // In bf16 a rounded gate logit now and then chooses another of such random experts.
            EXPECT_LT(relative_difference(logits, expected), compute == DType::kF32 ? 1e-5 : 0.3)
                << name_of(compute) << " tp " << tp << " cp " << cp;
            const int again = (*replica)->add_sequence(tokens);
            ASSERT_TRUE((*replica)->step({{again, std::ssize(tokens), true}}, {3}).ok());
            ASSERT_TRUE((*replica)->draft({3}).ok());
            const ConstView rows = (*replica)->logits();
            const auto* values = rows.row_as<float>(0);
            EXPECT_LT(relative_difference({values, values + rows.rows * rows.cols}, expected_drafts),
                      compute == DType::kF32 ? 1e-5 : 0.3)
                << "drafts, " << name_of(compute) << " tp " << tp << " cp " << cp;
        }
    }
}

}  // namespace
}  // namespace aerie::model
