// Prefill and decode replicas of every pair of layouts: what arrives is what was computed, and the
// answers agree with those of replicas that do both as far as the order of sums allows.
#include <gtest/gtest.h>

#include "base/fault.h"
#include "golden.h"
#include "in_process_cluster.h"

namespace aerie::cluster_tests {
namespace {

struct Layout {
    int tp, cp;
    int cards() const { return tp * cp; }
    auto operator<=>(const Layout&) const = default;
};
constexpr Layout kLayouts[] = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {2, 2}, {4, 2}};
constexpr int kPage = 16;

struct Case {
    Layout prefill, decode;
    const char* dtype;
};

std::string name_of(const Case& c) {
    return fmt::format("{}: prefill tp {} cp {}, decode tp {} cp {}", c.dtype, c.prefill.tp,
                       c.prefill.cp, c.decode.tp, c.decode.cp);
}

// Prompts of 5 to 99 tokens: less than a page, several, and several chunks.
std::vector<Golden> goldens() {
    const auto greedy = read_goldens("golden_greedy.json");
    return {greedy[4], greedy[14], greedy[15]};
}

std::vector<Request> requests() {
    std::vector<Request> made;
    for (const auto& golden : goldens()) {
        made.push_back(greedy(golden.prompt, static_cast<int>(golden.output.size()), true));
    }
    return made;
}

std::string settings(const Layout& prefill, int dp) {
    return fmt::format(R"({{"page_size": {}, "chunked_prefill_size": {}, "tp_size": {}, "cp_size": {},
                           "dp_size": {}, "max_total_tokens": 4096,
                           "disable_radix_cache": true}})",
                       kPage, 3 * kPage, prefill.tp, prefill.cp, dp);
}

// Each role has one node; the smaller layout is there as often as its cards allow.
ClusterSpec separated(const Case& c) {
    const int cards = std::max(c.prefill.cards(), c.decode.cards());
    const int dp = cards / c.prefill.cards();
    return {.toml = fmt::format(R"([cluster]
nodes = 3
gpus_per_node = {}
[parallel]
attention_tp = {}
attention_cp = {}
expert_ep = 1
expert_dp = {}
global_dp = {}
[ae_separation]
enabled = true
prefill_nodes = ["node-0"]
decode_attention_nodes = ["node-1"]
decode_nodes = ["node-2"]
decode_tp = {}
decode_cp = {}
kv_transfer = "active"
[model]
path = "models/demo"
dtype = "{}"
)",
                                cards, c.prefill.tp, c.prefill.cp, cards, dp, c.decode.tp,
                                c.decode.cp, c.dtype),
            .settings = settings(c.prefill, dp)};
}

ClusterSpec unified(const Layout& layout, const char* dtype) {
    return {.toml = fmt::format("[cluster]\ngpus_per_node = {}\n[parallel]\nattention_tp = {}\n"
                                "attention_cp = {}\n[ae_separation]\nenabled = false\n"
                                "[model]\ndtype = \"{}\"\n",
                                layout.cards(), layout.tp, layout.cp, dtype),
            .settings = settings(layout, 1)};
}

// Of the KV that moves: all layers of every prompt token, latent and rope, once.
double kv_bytes(const LoadedConfig& loaded) {
    double tokens = 0;
    for (const auto& golden : goldens()) tokens += static_cast<double>(golden.prompt.size());
    const double value = loaded.config.model.dtype == ComputeDtype::kFloat32 ? 4 : 2;
    const int num_layers =
        loaded.model.num_hidden_layers + (loaded.config.settings.enable_mtp ? 1 : 0);
    return tokens * num_layers *
           (loaded.model.kv_lora_rank + loaded.model.qk_rope_head_dim) * value;
}

struct Arrived {
    std::vector<uint64_t> sent, received;  // [layers]
};

Arrived arrived(const Outcome& outcome) {
    const auto middle = outcome.kv_hashes.begin() + static_cast<ptrdiff_t>(outcome.kv_hashes.size() / 2);
    return {{outcome.kv_hashes.begin(), middle}, {middle, outcome.kv_hashes.end()}};
}

size_t num_equal(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
    size_t count = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) count += a[i] == b[i];
    return count;
}

// What all cases of a dtype are compared with.
struct Reference {
    std::map<Layout, std::vector<Outcome>> unified;
    std::map<Layout, std::vector<std::vector<uint64_t>>> kv;  // [request][layer], of the first pair
};

void check_answers(const Case& c, const std::vector<Outcome>& outcomes, const Reference& reference) {
    const auto expected = goldens();
    const bool exact_tokens = std::string_view(c.dtype) == "float32";
    size_t num_tokens = 0, num_right = 0;
    for (size_t i = 0; i < outcomes.size(); ++i) {
        num_tokens += expected[i].output.size();
        num_right += num_equal(outcomes[i].tokens, expected[i].output);
        if (exact_tokens) {
            EXPECT_EQ(outcomes[i].tokens, expected[i].output) << i;
        }
        // The prompt's logits are those of the prefill replica, whatever decodes.
        const auto& prefilled = reference.unified.at(c.prefill)[i].hashes;
        const size_t num_prompt = expected[i].prompt.size();
        ASSERT_GE(outcomes[i].hashes.size(), num_prompt) << i << " " << outcomes[i].error;
        EXPECT_TRUE(std::equal(prefilled.begin(), prefilled.begin() + num_prompt,
                               outcomes[i].hashes.begin()))
            << i;
        if (c.prefill == c.decode) {
            EXPECT_EQ(outcomes[i], reference.unified.at(c.prefill)[i]) << i;
        }
    }
    EXPECT_GE(num_right, 0.98 * num_tokens) << num_right << " of " << num_tokens << " tokens";
}

void check_kv(const Case& c, const std::vector<Outcome>& outcomes, Reference& reference) {
    std::vector<std::vector<uint64_t>> sent;
    for (size_t i = 0; i < outcomes.size(); ++i) {
        const Arrived kv = arrived(outcomes[i]);
        EXPECT_EQ(kv.sent.size(), 6u) << i;
        EXPECT_EQ(kv.sent, kv.received) << i;
        sent.push_back(kv.sent);
    }
    EXPECT_EQ(reference.kv.try_emplace(c.prefill, sent).first->second, sent);
}

class Layouts : public testing::TestWithParam<const char*> {};

TEST_P(Layouts, EveryPairMovesTheKvThatWasComputed) {
    Reference reference;
    for (const Layout& layout : kLayouts) {
        Cluster cluster(unified(layout, GetParam()));
        reference.unified[layout] = cluster.run(requests());
    }
    for (const Layout& prefill : kLayouts) {
        for (const Layout& decode : kLayouts) {
            const Case c{prefill, decode, GetParam()};
            SCOPED_TRACE(name_of(c));
            Cluster cluster(separated(c));
            const auto outcomes = cluster.run(requests());
            check_answers(c, outcomes, reference);
            check_kv(c, outcomes, reference);
            cluster.expect_idle();
            EXPECT_EQ(cluster.metric("sglang:ae_sep_kv_transfer_bytes"), kv_bytes(cluster.loaded()));
            if (HasFatalFailure()) return;
        }
    }
}
INSTANTIATE_TEST_SUITE_P(Dtype, Layouts, testing::Values("bfloat16", "float32"),
                         [](const auto& info) { return std::string(info.param); });

TEST(LayoutsTest, APlantedFaultIsSeen) {
    const Case c{{1, 1}, {2, 2}, "bfloat16"};
    const auto whole = Cluster(separated(c)).run(requests());
    for (const Fault fault : {Fault::kKvBlockZeroed, Fault::kKvBlocksSwapped}) {
        planted_fault = static_cast<int>(fault);
        const auto outcomes = Cluster(separated(c)).run(requests());
        planted_fault = 0;
        for (size_t i = 0; i < outcomes.size(); ++i) {
            const Arrived kv = arrived(outcomes[i]);
            const bool hit = fault == Fault::kKvBlockZeroed || i > 0;  // the first has one block
            EXPECT_EQ(kv.sent != kv.received, hit) << static_cast<int>(fault) << " " << i;
            EXPECT_EQ(outcomes[i].hashes != whole[i].hashes, hit) << static_cast<int>(fault) << " " << i;
        }
    }
}

}  // namespace
}  // namespace aerie::cluster_tests
