// A prefix that is found in the cache gives the same bits as one that is computed: conversations of
// two turns that begin alike, and the goldens asked twice. Compared with a run without prefix cache
// are the tokens, and a hash of the logits at every position that was computed. Planted faults show
// that a match that is too long is seen, and KV that is not what it was in a lower tier.
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
    std::string more = "";  // settings
    bool retracted = false;  // some are; else they may be
    bool loses = false;  // pages of the file
    int tp = 1, cp = 1;
    int num_conversations = kNumConversations;
};

// A pool of 64 pages for about 300: some thousand tokens of the second turn come back from host
// memory, which holds all, or as few pages as the pool; or from a file, behind it or without it.
constexpr const char* kHostHoldsAll = R"(, "max_total_tokens": 1024, "hicache_size_gb": 0.2)";
constexpr const char* kHostHoldsSome = R"(, "max_total_tokens": 1024, "hicache_size_gb": 0.007)";

std::string with_file(const char* settings) {
    return fmt::format(R"({}, "hicache_file_size_gb": 0.05, "hicache_path": "{}")", settings,
                       testing::TempDir());
}
std::string file_alone() { return with_file(R"(, "max_total_tokens": 1024)"); }

// The goldens twice, then each conversation's two turns.
std::vector<Outcome> run(const Way& way) {
    Cluster cluster(
        {.toml = way.separated ? three_nodes() : "",
         .settings = fmt::format(R"({{"page_size": {}, "chunked_prefill_size": {}, )"
                                 R"("tp_size": {}, "cp_size": {}, "disable_radix_cache": {}{}}})",
                                 kPage, way.chunk, way.tp, way.cp, !way.radix, way.more)});
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
        for (int i = 0; i < way.num_conversations; ++i) {
            requests.push_back(greedy(conversations.texts[i], kTurnTokens, true));
            requests.back().sampling.ignore_eos = true;
            requests.back().cache_salt = conversations.salts[i];
        }
        const auto answers = take(requests);
        for (int i = 0; i < way.num_conversations; ++i) {
            auto& text = conversations.texts[i];
            text.insert(text.end(), answers[i].tokens.begin(), answers[i].tokens.end());
            for (int word = 0; word < kTurnTokens; ++word) text.push_back(2000 + 31 * i + word);
        }
    }
    cluster.expect_idle();
    EXPECT_TRUE(cluster.flush_cache());
    if (way.retracted)
        EXPECT_GT(cluster.metric("sglang:num_retracted_requests_total"), 0) << way.name;
    const auto has = [&](const char* setting) { return way.more.find(setting) != way.more.npos; };
    const auto hits = [&](const char* tier) {
        return cluster.metric("sglang:ae_sep_prefix_hit_tokens", {{"tier", tier}});
    };
    EXPECT_EQ(hits("host") > 300, has("hicache_size_gb")) << way.name;
    EXPECT_EQ(hits("file") > 300, has("hicache_path")) << way.name;
    EXPECT_EQ(cluster.metric("sglang:ae_sep_prefix_lost_pages_total") > 0, way.loses) << way.name;
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
        {.name = "separated", .separated = true, .more = kHostHoldsAll, .retracted = true},
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

TEST_F(PrefixExactness, WhatComesBackFromAFileHasTheSameBits) {
    const auto run_with = [](Fault fault, const Way& way) {
        planted_fault = static_cast<int>(fault);
        auto outcomes = run(way);
        planted_fault = 0;
        return outcomes;
    };
    const std::string behind = with_file(kHostHoldsSome);
    const struct {
        Fault fault;
        Way way;
    } cases[] = {
        {Fault::kNone, {.name = "behind host memory", .more = behind, .retracted = true}},
        {Fault::kNone,
         {.name = "alone, chunk 16", .chunk = 16, .more = file_alone(), .retracted = true}},
        // Damaged pages are computed again.
        {Fault::kFilePageDamaged,
         {.name = "damaged", .more = file_alone(), .retracted = true, .loses = true}},
    };
    for (const auto& [fault, way] : cases) {
        const auto outcomes = run_with(fault, way);
        EXPECT_THAT(differing(reference(), outcomes), testing::IsEmpty()) << way.name;
    }
    const auto faulty = run_with(Fault::kFilePageUnchecked,
                                 {.name = "unchecked", .more = file_alone(), .retracted = true});
    EXPECT_GT(differing(reference(), faulty).size(), 20u);
}

// Each cp rank has its own blocks, slots and file. Sums over ranks have an order of their own, so this
// layout is its own reference.
TEST_F(PrefixExactness, LowerTiersOfSeveralRanksHaveTheSameBits) {
    Way way{.name = "without", .radix = false, .tp = 2, .cp = 2, .num_conversations = 40};
    const auto expected = run(way);
    way.name = "host and file";
    way.radix = true;
    way.more = with_file(R"(, "max_total_tokens": 512, "hicache_size_gb": 0.004)");
    EXPECT_THAT(differing(expected, run(way)), testing::IsEmpty());
}

// What was in the file is computed, nothing fails.
TEST_F(PrefixExactness, AFullDiskChangesNothing) {
    Cluster cluster({.settings = fmt::format(R"({{"page_size": {}{}}})", kPage,
                                             with_file(R"(, "max_total_tokens": 512)"))});
    std::vector<Request> requests;
    const Conversations conversations = make_conversations();
    for (int i = 0; i < 20; ++i) requests.push_back(greedy(conversations.texts[i], 4));
    const auto expected = cluster.run(requests);
    EXPECT_GT(cluster.metric("sglang:ae_sep_prefix_file_tokens"), 0);
    for (const Fault fault : {Fault::kNone, Fault::kFileFull, Fault::kFileFull}) {
        planted_fault = static_cast<int>(fault);
        const auto outcomes = cluster.run(requests);
        planted_fault = 0;
        for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(outcomes[i], expected[i]) << i;
    }
    EXPECT_GT(cluster.metric("sglang:ae_sep_prefix_lost_pages_total"), 0);
    EXPECT_EQ(cluster.metric("sglang:ae_sep_prefix_file_tokens"), 0);
}

TEST_F(PrefixExactness, AMatchThatIsTooLongIsSeen) {
    planted_fault = static_cast<int>(Fault::kMatchTooLong);
    const auto faulty = run({.name = "faulty"});
    planted_fault = 0;
    EXPECT_GT(differing(reference(), faulty).size(), 100u);
}

}  // namespace
}  // namespace aerie::cluster_tests
