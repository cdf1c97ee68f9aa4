// The KV transfer between P and D as requests see it: whichever way it takes, the logits have the same
// bits; each rule of the policy is met on purpose; pools for six bear a thousand requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fault.h"
#include "golden.h"
#include "in_process_cluster.h"
#include "pressure.h"

namespace aerie::cluster_tests {
namespace {

ClusterSpec spec(const std::string& mode, const std::string& settings, const std::string& ae = "") {
    return {.toml = three_nodes("", "float32"),
            .settings = settings,
            .overrides = {{"kv-transfer", mode}, {"kv-lease-s", ae.empty() ? "30" : ae}},
            .model = {}};
}

std::vector<Request> goldens_with_hashes() {
    std::vector<Request> requests;
    for (const char* file : {"golden_greedy.json", "golden_long.json"}) {
        for (const auto& golden : read_goldens(file)) {
            if (golden.prompt.size() > 1100) continue;  // the others take long and show no more
            requests.push_back(greedy(golden.prompt, static_cast<int>(golden.output.size()), true));
        }
    }
    return requests;
}

// Whether tokens differ, or hashes of positions that both have computed.
std::vector<size_t> differing(const std::vector<Outcome>& a, const std::vector<Outcome>& b) {
    std::vector<size_t> found;
    for (size_t i = 0; i < a.size(); ++i) {
        const size_t both = std::min(a[i].hashes.size(), b[i].hashes.size());
        const bool same = a[i].tokens == b[i].tokens && both > 0 &&
                          std::equal(a[i].hashes.end() - both, a[i].hashes.end(), b[i].hashes.end() - both);
        if (!same) found.push_back(i);
    }
    return found;
}

constexpr const char* kSmallPages = R"({"page_size": 16, "chunked_prefill_size": 64, "disable_radix_cache": true})";

TEST(TransferExactness, EachWayGivesTheSameBits) {
    const auto requests = goldens_with_hashes();
    std::vector<Outcome> reference;
    {
        Cluster colocated({.toml = "", .settings = kSmallPages, .overrides = {{"dtype", "float32"}}, .model = {}});
        reference = colocated.run(requests);
    }
    for (const char* mode : {"active", "passive", "active_passive"}) {
        for (const bool radix : {false, true}) {
            Cluster cluster(spec(mode, radix ? R"({"page_size": 16, "chunked_prefill_size": 64})" : kSmallPages));
            EXPECT_THAT(differing(reference, cluster.run(requests)), testing::IsEmpty()) << mode;
            // Again: from what the caches hold.
            EXPECT_THAT(differing(reference, cluster.run(requests)), testing::IsEmpty()) << mode;
            cluster.expect_idle();
            const double pushed = cluster.metric("sglang:ae_sep_active_transfer_count");
            const double pulled = cluster.metric("sglang:ae_sep_passive_transfer_count");
            if (!radix) {
                EXPECT_EQ(pushed + pulled, 2.0 * static_cast<double>(requests.size())) << mode;
            }
            EXPECT_TRUE(pulled == 0 || mode != std::string("active"));
            EXPECT_TRUE(pushed == 0 || mode != std::string("passive"));
        }
    }
}

TEST(TransferExactness, PlantedFaultsAreSeenInBothWays) {
    const auto requests = goldens_with_hashes();
    for (const char* mode : {"active", "passive"}) {
        std::vector<Outcome> right;
        for (const Fault fault : {Fault::kNone, Fault::kKvBlockZeroed, Fault::kKvRunShifted}) {
            Cluster cluster(spec(mode, kSmallPages));
            planted_fault = static_cast<int>(fault);
            const auto outcomes = cluster.run(requests);
            planted_fault = 0;
            if (fault == Fault::kNone) {
                right = outcomes;
            } else {
                EXPECT_FALSE(differing(right, outcomes).empty()) << mode << " " << static_cast<int>(fault);
            }
        }
    }
}

// ---- the rules of active_passive

double reason(Cluster& cluster, const std::string& name) {
    return cluster.metric("sglang:ae_sep_kv_policy_total", {{"reason", name}});
}

// `count` of the short goldens' prompts, one after the other.
std::vector<int32_t> joined(int first, int count) {
    const auto goldens = read_goldens("golden_greedy.json");
    std::vector<int32_t> prompt;
    for (int i = first; i < first + count; ++i) {
        const auto& more = goldens[i % goldens.size()].prompt;
        prompt.insert(prompt.end(), more.begin(), more.end());
    }
    return prompt;
}

std::vector<int32_t> long_prompt() { return read_goldens("golden_long.json")[0].prompt; }

TEST(TransferPolicy, PushesByDefault) {
    Cluster cluster(spec("active_passive", R"({"page_size": 16})"));
    EXPECT_EQ(cluster.wait(cluster.start(greedy(long_prompt(), 4))).tokens.size(), 4u);
    EXPECT_EQ(reason(cluster, "default"), 1);
    EXPECT_EQ(cluster.metric("sglang:ae_sep_active_transfer_count"), 1);
    EXPECT_EQ(cluster.metric("sglang:ae_sep_passive_transfer_count"), 0);
}

TEST(TransferPolicy, PullsWhatPrefillHasWhole) {
    Cluster cluster(spec("active_passive", R"({"page_size": 16})"));
    const Outcome first = cluster.wait(cluster.start(greedy(long_prompt(), 4)));
    cluster.expect_idle();
    ASSERT_TRUE(cluster.flush_cache(1));  // decode's: it would compute the tail itself
    const Outcome second = cluster.wait(cluster.start(greedy(long_prompt(), 4)));
    EXPECT_EQ(second.tokens, first.tokens);
    EXPECT_GT(second.cached_tokens, 0);
    EXPECT_EQ(reason(cluster, "prompt_cached"), 1);
    EXPECT_EQ(cluster.metric("sglang:ae_sep_passive_transfer_count"), 1);
    cluster.expect_idle();
}

// What decode holds keeps it from offering more; prefill has nothing else to do.
TEST(TransferPolicy, PullsWhereNoOfferComes) {
    Cluster cluster(spec("active_passive", R"({"page_size": 64, "max_total_tokens": 1024})"));
    const auto prompt = read_goldens("golden_greedy.json")[0].prompt;
    Request big = greedy(prompt, 900);
    big.sampling.ignore_eos = true;
    const RequestId running = cluster.start(big);
    const RequestId waiting = cluster.start(greedy(read_goldens("golden_greedy.json")[1].prompt, 600));
    EXPECT_EQ(cluster.wait(running).tokens.size(), 900u);
    EXPECT_NE(cluster.wait(waiting).finish, FinishReason::kAbort);
    EXPECT_EQ(reason(cluster, "late_binding"), 1);
    EXPECT_EQ(cluster.metric("sglang:ae_sep_passive_transfer_count"), 1);
    cluster.expect_idle();
}

TEST(TransferPolicy, PullsWhatDecodeHasRetractedAndPrefillHolds) {
    Cluster cluster(spec("active_passive",
                         R"({"page_size": 16, "max_total_tokens": 2304, "chunked_prefill_size": 16})"));
    std::vector<Request> requests;
    for (int i = 0; i < 3; ++i) {
        requests.push_back(greedy(joined(i, 6), 900));
        requests.back().sampling.ignore_eos = true;
    }
    for (const Outcome& outcome : cluster.run(requests)) EXPECT_EQ(outcome.tokens.size(), 900u) << outcome.error;
    EXPECT_GT(cluster.metric("sglang:num_retracted_requests_total"), 0);
    EXPECT_GT(reason(cluster, "prefix_held"), 0);
    cluster.expect_idle();
}

TEST(Transfer, ALeaseThatRunsOutIsComputedAgain) {
    Cluster cluster(spec("passive", R"({"page_size": 64, "max_total_tokens": 1024})", "0.3"));
    const auto goldens = read_goldens("golden_greedy.json");
    Request big = greedy(goldens[0].prompt, 900);
    big.sampling.ignore_eos = true;
    const RequestId running = cluster.start(big);
    const RequestId waiting = cluster.start(greedy(goldens[1].prompt, 600));
    EXPECT_EQ(cluster.wait(running).tokens.size(), 900u);
    const Outcome outcome = cluster.wait(waiting);
    EXPECT_NE(outcome.finish, FinishReason::kAbort) << outcome.error;
    EXPECT_GT(reason(cluster, "configured"), 2);  // two requests, and what was computed again
    cluster.expect_idle();
}

// ---- pressure

class TransferPressure : public testing::TestWithParam<const char*> {};

TEST_P(TransferPressure, PoolsForSixBearAThousandRequestsAndCancels) {
    // 24 to 56 tokens each; of each two one begins like the other.
    std::vector<Request> kinds;
    for (int i = 0; i < 9; ++i) {
        for (const int count : {3, 5}) kinds.push_back(greedy(joined(i, count), 24));
    }
    std::vector<Outcome> answers;
    {
        Cluster roomy(spec("active", R"({"page_size": 16})"));
        answers = roomy.run(kinds);
    }
    Cluster cluster(spec(GetParam(), R"({"page_size": 16, "max_total_tokens": 480, "chunked_prefill_size": 32})"));
    press(cluster, kinds, answers);
}
INSTANTIATE_TEST_SUITE_P(Mode, TransferPressure, testing::Values("active", "passive", "active_passive"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace aerie::cluster_tests
