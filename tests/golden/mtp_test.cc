// The MTP layer's drafts for the goldens' answers: those of the reference, token for token.
#include "base/json.h"
#include "model/testing/demo.h"

namespace aerie::model {
namespace {

const std::string kDemo = AERIE_SOURCE_DIR "/models/demo";

struct Drafts {
    int right = 0;         // equal to the token that came
    int as_reference = 0;  // equal to the reference's draft
    int total = 0;
};

// Drafts of the token after each token of the answer but the last, made in chunks of 50 rows.
Drafts count_drafts(DType compute, const ReplicaOptions& options) {
    auto prompts = read_golden_prompts(kDemo + "/golden/golden_greedy.json");
    CHECK(prompts.ok(), "{}", prompts.message());
    // [prompt][draft]: argmax of reference.py's mtp()
    auto reference = read_json_file(AERIE_SOURCE_DIR "/tests/golden/mtp_drafts.json");
    CHECK(reference.ok(), "{}", reference.message());
    auto replica = TestReplica::create(demo_model(kDemo, compute), options);
    CHECK(replica.ok(), "{}", replica.message());
    Drafts drafts;
    for (size_t prompt = 0; prompt < prompts->size(); ++prompt) {
        const GoldenPrompt& golden = (*prompts)[prompt];
        std::vector<int32_t> tokens = golden.prompt_ids;
        tokens.insert(tokens.end(), golden.output_ids.begin(), golden.output_ids.end());
        const int sequence = (*replica)->add_sequence(tokens);
        size_t position = 0;
        while (position + 1 < tokens.size()) {
            const auto rows = std::min<int64_t>(50, static_cast<int64_t>(tokens.size() - 1 - position));
            Status status = (*replica)->step({{sequence, rows, true}});
            if (status) status = (*replica)->draft();
            CHECK(status.ok(), "{}", status.message());
            const ConstView logits = (*replica)->logits();
            for (int64_t row = 0; row < rows; ++row, ++position) {
                if (position < golden.prompt_ids.size()) continue;
                const int32_t draft = argmax(logits.row_as<float>(row), logits.cols);
                const size_t index = position - golden.prompt_ids.size();
                drafts.right += draft == tokens[position + 1];
                drafts.as_reference += draft == reference->as_array()[prompt].as_array()[index].as_int();
                ++drafts.total;
            }
        }
    }
    return drafts;
}

TEST(GoldenMtp, Float32DraftsAsTheReference) {
    const Drafts drafts = count_drafts(DType::kF32, {.mtp = true});
    EXPECT_EQ(drafts.total, 320);
    EXPECT_EQ(drafts.as_reference, 320);
    EXPECT_EQ(drafts.right, 316);
}

TEST(GoldenMtp, BFloat16) {
    EXPECT_GE(count_drafts(DType::kBF16, {.mtp = true}).right, 312);
}

TEST(GoldenMtp, Split) {
    const ReplicaOptions options{
        .tp_size = 2, .cp_size = 2, .ep_size = 3, .page_size = 4, .tile_rows = 16, .mtp = true};
    EXPECT_EQ(count_drafts(DType::kF32, options).as_reference, 320);
    EXPECT_GE(count_drafts(DType::kBF16, options).right, 312);
}

}  // namespace
}  // namespace aerie::model
