// A prefix that is found in the cache gives the same bits as one that is computed: conversations of
// two turns that begin alike, and the goldens asked twice. Compared with a run without prefix cache
// are the tokens, and a hash of the logits at every position that was computed. A planted fault
// shows that a match that is too long is seen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fault.h"
#include "golden.h"
#include "in_process_cluster.h"

namespace aerie::cluster_tests {
namespace {

constexpr int kPage = 16;
constexpr int kNumConversations = 100;
constexpr int kTurnTokens = 8;  // of the user, and of the answer

// What 100 users say: four beginnings, each user's own words, and salts for some.
struct Conversations {
    std::vector<std::vector<int32_t>> texts;
    std::vector<std::string> salts;
};

Conversations make_conversations() {
    Conversations made;
    const auto goldens = read_goldens("golden_greedy.json");
    for (int i = 0; i < kNumConversations; ++i) {
        std::vector<int32_t> text;
        for (int part = 0; text.size() < 100; ++part) {
            const auto& prompt = goldens[(i % 4 + 4 * part) % goldens.size()].prompt;
            text.insert(text.end(), prompt.begin(), prompt.end());
        }
        for (int word = 0; word < kTurnTokens; ++word) text.push_back(1000 + 37 * i + word);
        made.texts.push_back(std::move(text));
        made.salts.push_back(i % 10 == 9 ? "apart" : "");
    }
    return made;
}

struct Way {
    const char* name;
    bool separated = false;
    bool radix = true;
    int chunk = 8192;
    const char* more = "";  // settings
    bool retracted = false;
};

// A pool of 64 pages for about 300: some thousand tokens of the second turn come back from host
// memory, which holds all, or as few pages as the pool.
constexpr const char* kHostHoldsAll = R"(, "max_total_tokens": 1024, "hicache_size_gb": 0.2)";
constexpr const char* kHostHoldsSome = R"(, "max_total_tokens": 1024, "hicache_size_gb": 0.007)";

// The goldens twice, then each conversation's two turns.
std::vector<Outcome> run(const Way& way) {
    Cluster cluster(
        {.toml = way.separated ? three_nodes() : "",
         .settings = fmt::format(R"({{"page_size": {}, "chunked_prefill_size": {}, )"
                                 R"("disable_radix_cache": {}{}}})",
                                 kPage, way.chunk, !way.radix, way.more)});
    std::vector<Outcome> outcomes;
    const auto take = [&](const std::vector<Request>& requests) {
        const auto ended = cluster.run(requests);
        for (size_t i = 0; i < ended.size(); ++i) {
            EXPECT_NE(ended[i].finish, FinishReason::kAbort) << way.name << ": " << ended[i].error;
            const size_t num_positions = requests[i].prompt.size() + ended[i].tokens.size() - 1;
            EXPECT_EQ(ended[i].hashes.size() + ended[i].cached_tokens, num_positions) << way.name;
        }
        outcomes.insert(outcomes.end(), ended.begin(), ended.end());
        return ended;
    };
    std::vector<Request> requests;
    for (const auto& golden : read_goldens("golden_greedy.json")) {
        requests.push_back(greedy(golden.prompt, static_cast<int>(golden.output.size()), true));
    }
    take(requests);
    take(requests);
    Conversations conversations = make_conversations();
    for (int turn = 0; turn < 2; ++turn) {
        requests.clear();
        for (int i = 0; i < kNumConversations; ++i) {
            requests.push_back(greedy(conversations.texts[i], kTurnTokens, true));
            requests.back().sampling.ignore_eos = true;
            requests.back().cache_salt = conversations.salts[i];
        }
        const auto answers = take(requests);
        for (int i = 0; i < kNumConversations; ++i) {
            auto& text = conversations.texts[i];
            text.insert(text.end(), answers[i].tokens.begin(), answers[i].tokens.end());
            for (int word = 0; word < kTurnTokens; ++word) text.push_back(2000 + 31 * i + word);
        }
    }
    cluster.expect_idle();
    EXPECT_TRUE(cluster.flush_cache());
    EXPECT_EQ(cluster.metric("sglang:num_retracted_requests_total") > 0, way.retracted) << way.name;
    const bool host = std::string_view(way.more).find("hicache") != std::string_view::npos;
    EXPECT_EQ(cluster.metric("sglang:ae_sep_prefix_hit_tokens", {{"tier", "host"}}) > 300, host)
        << way.name;
    return outcomes;
}

// The outcomes whose tokens, or whose hashes where both computed them, differ.
std::vector<size_t> differing(const std::vector<Outcome>& reference,
                              const std::vector<Outcome>& others) {
    std::vector<size_t> found;
    for (size_t i = 0; i < reference.size(); ++i) {
        const auto& all = reference[i].hashes;
        const auto& some = others[i].hashes;
        const bool same = reference[i].tokens == others[i].tokens && some.size() <= all.size() &&
                          std::equal(some.rbegin(), some.rend(), all.rbegin());
        if (!same) found.push_back(i);
    }
    return found;
}

int64_t num_cached(const std::vector<Outcome>& outcomes) {
    int64_t sum = 0;
    for (const Outcome& outcome : outcomes) sum += outcome.cached_tokens;
    return sum;
}

class PrefixExactness : public testing::Test {
  protected:
    static const std::vector<Outcome>& reference() {
        static const auto* outcomes =
            new std::vector<Outcome>(run({.name = "without", .radix = false}));
        return *outcomes;
    }
};

TEST_F(PrefixExactness, AHitIsAMissBitForBit) {
    EXPECT_EQ(num_cached(reference()), 0);
    const Way ways[] = {
        {.name = "colocated"},
        {.name = "colocated, chunk 16, lpm", .chunk = 16, .more = R"(, "schedule_policy": "lpm")"},
        {.name = "colocated, not mixed, dfs-weight",
         .chunk = 64,
         .more = R"(, "enable_mixed_chunk": false, "schedule_policy": "dfs-weight")"},
        {.name = "colocated, retracted",
         .more = R"(, "max_total_tokens": 192, "schedule_conservativeness": 0.02)",
         .retracted = true},
        {.name = "separated", .separated = true},
        {.name = "separated, chunk 16", .separated = true, .chunk = 16},
    };
    for (const Way& way : ways) {
        const auto outcomes = run(way);
        EXPECT_THAT(differing(reference(), outcomes), testing::IsEmpty()) << way.name;
        // Not where the pool holds hardly more than what runs.
        if (!way.retracted) EXPECT_GT(num_cached(outcomes), 10000) << way.name;
    }
}

TEST_F(PrefixExactness, WhatComesBackFromHostMemoryHasTheSameBits) {
    const Way ways[] = {
        {.name = "all", .more = kHostHoldsAll, .retracted = true},
        {.name = "some, chunk 16", .chunk = 16, .more = kHostHoldsSome, .retracted = true},
    };
    for (const Way& way : ways) {
        const auto outcomes = run(way);
        EXPECT_THAT(differing(reference(), outcomes), testing::IsEmpty()) << way.name;
    }
    planted_fault = static_cast<int>(Fault::kHostPageZeroed);
    const auto faulty = run({.name = "faulty", .more = kHostHoldsAll, .retracted = true});
    planted_fault = 0;
    EXPECT_GT(differing(reference(), faulty).size(), 50u);
}

TEST_F(PrefixExactness, AMatchThatIsTooLongIsSeen) {
    planted_fault = static_cast<int>(Fault::kMatchTooLong);
    const auto faulty = run({.name = "faulty"});
    planted_fault = 0;
    EXPECT_GT(differing(reference(), faulty).size(), 100u);
}

}  // namespace
}  // namespace aerie::cluster_tests
