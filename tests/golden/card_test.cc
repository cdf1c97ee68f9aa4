// The demo model on a card: the goldens, the CPU's logits within a bound, and what must not change
// a bit. Skipped where there is no card.
#include "tensor/card.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "config/card_memory.h"
#include "config/memory_plan.h"
#include "model/testing/demo.h"
#include "sample/on_card.h"

namespace aerie::model {
namespace {

const std::string kDemo = AERIE_SOURCE_DIR "/models/demo";

class CardGolden : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        if (card::count() == 0) return;
        std::printf("of %s CUDA leaves %s\n", format_bytes(card::memory_total()).c_str(),
                    format_bytes(card::memory_free()).c_str());
        auto loaded = TestModel::load(
            kDemo, {.compute = DType::kBF16, .keep_fp8 = true, .device = Device::kCuda});
        CHECK(loaded.ok(), "{}", loaded.message());
        model_ = std::move(loaded).value().release();
    }
    static void TearDownTestSuite() {
        delete model_;
        model_ = nullptr;
    }
    void SetUp() override {
        if (model_ == nullptr) GTEST_SKIP() << "no card";
    }
    static std::unique_ptr<TestReplica> replica(const ReplicaOptions& more = {}) {
        ReplicaOptions options = more;
        options.device = Device::kCuda;
        options.expand = !options.deterministic;
        options.tile_rows = options.max_rows;
        auto made = TestReplica::create(*model_, options);
        CHECK(made.ok(), "{}", made.message());
        return std::move(made).value();
    }
    static TestModel* model_;
};
TestModel* CardGolden::model_ = nullptr;

std::vector<GoldenPrompt> goldens(const std::string& file) {
    auto prompts = read_golden_prompts(kDemo + "/golden/" + file);
    CHECK(prompts.ok(), "{}", prompts.message());
    return *std::move(prompts);
}

// Deterministic, or with rows quantised to FP8 and prompts expanded.
TEST_F(CardGolden, GivesTheTokens) {
    for (const bool deterministic : {true, false}) {
        auto on_card = replica({.deterministic = deterministic});
        int right = 0, total = 0;
        for (const GoldenPrompt& golden : goldens("golden_greedy.json")) {
            right += count_right(*on_card, golden);
            total += static_cast<int>(golden.output_ids.size());
        }
        EXPECT_EQ(total, 336);
        EXPECT_GE(right, 331);
        std::printf("deterministic %d: %d of %d golden tokens\n", deterministic, right, total);
    }
}

TEST_F(CardGolden, FindsTheLongAnswers) {
    for (const GoldenPrompt& golden : goldens("golden_long.json")) {
        for (const bool deterministic : {true, false}) {
            auto on_card = replica({.max_positions = 16384, .deterministic = deterministic});
            EXPECT_EQ(count_right(*on_card, golden), static_cast<int>(golden.output_ids.size()))
                << golden.prompt_ids.size() << " tokens, deterministic " << deterministic;
        }
    }
}

// Both round in bfloat16, at other places.
TEST_F(CardGolden, LogitsAreThoseOfTheCpu) {
    const auto tokens = goldens("golden_greedy.json")[0].prompt_ids;
    std::vector<float> on_cpu, on_card;
    auto cpu = TestReplica::create(demo_model(kDemo, DType::kBF16), {});
    ASSERT_TRUE(cpu.ok());
    ASSERT_TRUE((*cpu)->prefill((*cpu)->add_sequence(tokens), 512, true, on_cpu).ok());
    auto made = replica();
    ASSERT_TRUE(made->prefill(made->add_sequence(tokens), 512, true, on_card).ok());
    const std::vector<double> wanted(on_cpu.begin(), on_cpu.end());
    const double difference = relative_difference(on_card, wanted);
    std::printf("logits differ from the CPU's by %.4f\n", difference);
    EXPECT_LT(difference, 0.06);
}

struct Generated {
    int right = 0, total = 0;
    std::vector<float> logits;  // of all steps
};

// All goldens' answers in one batch, fed with the golden tokens.
Generated generate(TestReplica& replica) {
    const auto prompts = goldens("golden_greedy.json");
    std::vector<size_t> lengths(prompts.size());
    std::vector<StepPart> parts;
    for (const GoldenPrompt& golden : prompts) {
        const int sequence = replica.add_sequence(golden.prompt_ids);
        parts.push_back({sequence, static_cast<int64_t>(golden.prompt_ids.size())});
    }
    const int first = parts.front().sequence;
    Generated out;
    while (!parts.empty()) {
        const Status status = replica.step(parts);
        CHECK(status.ok(), "{}", status.message());
        const ConstView logits = replica.logits();
        out.logits.insert(out.logits.end(), logits.row_as<float>(0),
                          logits.row_as<float>(logits.rows));
        std::vector<StepPart> next;
        for (size_t i = 0; i < parts.size(); ++i) {
            const int sequence = parts[i].sequence;
            const auto& wanted = prompts[sequence - first].output_ids;
            const size_t at = lengths[sequence - first]++;
            const float* row = logits.row_as<float>(static_cast<int64_t>(i));
            out.right += std::max_element(row, row + logits.cols) - row == wanted[at];
            ++out.total;
            replica.append(sequence, wanted[at]);
            if (at + 1 < wanted.size()) next.push_back({sequence, 1});
        }
        parts = std::move(next);
    }
    return out;
}

TEST_F(CardGolden, GivesTheTokensInOneBatch) {
    for (const bool deterministic : {true, false}) {
        auto eager = replica({.page_size = 16, .deterministic = deterministic});
        const Generated one = generate(*eager);
        EXPECT_EQ(one.total, 336);
        EXPECT_GE(one.right, 331);
        EXPECT_EQ(eager->rank(0).num_graph_steps(), 0u);

        // A graph of more rows than the step has gives the same bits.
        auto graphs = replica(
            {.page_size = 16, .graph_rows = {1, 3, 12, 16}, .deterministic = deterministic});
        const Generated other = generate(*graphs);
        std::printf("deterministic %d: %d and %d of 336 golden tokens in one batch\n",
                    deterministic, one.right, other.right);
        EXPECT_GE(other.right, 331);
        EXPECT_GT(graphs->rank(0).num_graph_steps(), 20u);
        EXPECT_EQ(graphs->rank(0).num_eager_steps(), 0u);
        if (deterministic) EXPECT_EQ(other.logits, one.logits);
    }
}

// Of every three rows two are drawn on the card, from the logits that another replica brings to the
// host.
void compare_draws(TestReplica& host, TestReplica& card, int vocab_size) {
    const sample::SamplerOptions options{vocab_size, vocab_size - 1, {}};
    sample::Sampler sampler(options);
    const auto prompts = goldens("golden_greedy.json");
    std::vector<StepPart> parts;
    for (const GoldenPrompt& golden : prompts) {
        parts.push_back({host.add_sequence(golden.prompt_ids),
                         static_cast<int64_t>(golden.prompt_ids.size())});
        ASSERT_EQ(card.add_sequence(golden.prompt_ids), parts.back().sequence);
    }
    for (int step = 0; step < 20; ++step) {
        std::vector<SamplingParams> params(parts.size());
        std::vector<kernels::DrawParams> draws(parts.size());
        for (size_t i = 0; i < parts.size(); ++i) {
            params[i].seed = i;
            params[i].temperature = i % 4 == 1 ? 0 : 0.8;
            params[i].top_p = i % 2 == 0 ? 0.9 : 1;
            if (i % 3 != 0) draws[i] = *sample::draw_on_card(options, params[i], step, step);
        }
        ASSERT_TRUE(host.step(parts).ok());
        ASSERT_TRUE(card.step(parts, {}, draws).ok());
        const ConstView logits = host.logits();
        ASSERT_EQ(card.rank(0).drawn().size(), parts.size());
        for (size_t i = 0; i < parts.size(); ++i) {
            const auto row = static_cast<int64_t>(i);
            const auto wanted = sampler.sample(logits.row_as<float>(row), params[i], {}, step);
            ASSERT_TRUE(wanted.ok());
            if (i % 3 != 0) {
                const auto token = sample::token_of(card.rank(0).drawn()[i], options);
                EXPECT_EQ(token.value(), wanted.value()) << "step " << step << ", row " << i;
            } else {
                EXPECT_EQ(std::memcmp(logits.row(row), card.logits().row(row),
                                      static_cast<size_t>(logits.cols) * sizeof(float)),
                          0)
                    << "step " << step << ", row " << i;
            }
            host.append(parts[i].sequence, wanted.value());
            card.append(parts[i].sequence, wanted.value());
            parts[i].num_tokens = 1;
        }
    }
}

TEST_F(CardGolden, DrawsAreTheSamplers) {
    for (const std::vector<int64_t>& graph_rows : {std::vector<int64_t>(), {1, 3, 16}}) {
        const ReplicaOptions options{.page_size = 16, .graph_rows = graph_rows};
        const auto host = replica(options), card = replica(options);
        compare_draws(*host, *card, model_->config.vocab_size);
        EXPECT_EQ(card->rank(0).num_graph_steps() > 0, !graph_rows.empty());
    }
}

// Chunks of any size and pages of any size, in deterministic mode.
TEST_F(CardGolden, BitsDependOnTheTokensAlone) {
    std::vector<int32_t> prompt = goldens("golden_long.json").back().prompt_ids;
    ASSERT_GT(prompt.size(), 700u);
    prompt.resize(700);
    const uint64_t whole =
        logits_hash(*replica({.max_rows = 1024, .max_logits_rows = 1024}), prompt, 1024);
    EXPECT_EQ(logits_hash(*replica(), prompt, 512), whole);
    EXPECT_EQ(logits_hash(*replica({.page_size = 16}), prompt, 33), whole);
    EXPECT_EQ(logits_hash(*replica({.graph_rows = {1}}), prompt, 1), whole);
    std::vector<int32_t> changed = prompt;
    ++changed[3];
    EXPECT_NE(logits_hash(*replica(), changed, 512), whole);
}

// What `aerie check` plans is what a rank takes, and steps take no more.
TEST_F(CardGolden, TakesTheMemoryThatIsPlanned) {
    for (const bool deterministic : {true, false}) {
        const ReplicaOptions options{.max_rows = 8192,
                                     .max_logits_rows = 1024,
                                     .graph_rows = {1, 2, 4, 8, 16},
                                     .deterministic = deterministic};
        const int64_t positions = model_->rope->max_position();
        const CardStep largest{.rows = options.max_rows,
                               .logits_rows = options.max_logits_rows,
                               .sequences = options.max_rows,
                               .positions = positions,
                               .rope_positions = positions,
                               .page_size = options.page_size,
                               .num_local_experts = model_->config.n_routed_experts,
                               .deterministic = deterministic,
                               .num_graphs = std::ssize(options.graph_rows)};
        const int64_t rope = positions * model_->config.qk_rope_head_dim * 4;  // is there already
        const int64_t planned = card_step_bytes(model_->config, largest) - card_allocation(rope);
        // Once before, as what is loaded at first calls stays.
        generate(*replica(options));
        const int64_t before = card::memory_free();
        auto made = replica(options);
        const int64_t after = card::memory_free();
        const int64_t taken =
            before - after - card_allocation(static_cast<int64_t>(made->pool(0).num_bytes()));
        std::printf("deterministic %d: %s planned, %s taken\n", deterministic,
                    format_bytes(planned).c_str(), format_bytes(taken).c_str());
        EXPECT_LE(taken, planned);
        EXPECT_GE(taken, planned * 9 / 10 - (int64_t{32} << 20));
        const Generated out = generate(*made);
        EXPECT_EQ(out.total, 336);
        EXPECT_EQ(card::memory_free(), after);
    }
}

}  // namespace
}  // namespace aerie::model
