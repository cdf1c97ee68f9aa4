#include "cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <numeric>

namespace aerie::cache {
namespace {

std::vector<int32_t> range(int first, int last) {
    std::vector<int32_t> tokens(last - first);
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
}

struct Fixture : testing::Test {
    KvBlocks kv{{.num_blocks = 8, .page_size = 4, .cp = 1}};
    PrefixCache cache{kv};

    std::vector<int32_t> fresh(int num_blocks) {
        std::vector<int32_t> blocks;
        EXPECT_TRUE(kv.extend(blocks, num_blocks));
        return blocks;
    }
    // A sequence that comes, is computed and ends.
    void compute(const std::vector<int32_t>& tokens, const std::string& salt = "") {
        std::vector<int32_t> blocks;
        cache.acquire(salt, tokens, blocks);
        ASSERT_TRUE(kv.extend(blocks, kv.blocks_for(static_cast<int64_t>(tokens.size()))));
        cache.insert(salt, tokens, blocks);
        kv.release(blocks);
    }
    int cached(const std::vector<int32_t>& tokens, const std::string& salt = "") {
        return cache.match(salt, tokens).num_tokens;
    }
};
using PrefixCacheTest = Fixture;

TEST_F(PrefixCacheTest, MatchesWholePages) {
    compute(range(0, 11));
    EXPECT_EQ(cache.cached_tokens(), 8);
    EXPECT_EQ(kv.pool(0).num_used(), 2);
    EXPECT_EQ(kv.used_tokens(), 0);
    const struct {
        std::vector<int32_t> tokens;
        int expected;
    } cases[] = {
        {{}, 0},           {range(0, 3), 0},
        {range(0, 4), 4},  {range(0, 7), 4},
        {range(0, 8), 8},  {range(0, 40), 8},
        {range(4, 8), 0},  {range(1, 9), 0},
        {{0, 1, 2, 9}, 0}, {{0, 1, 2, 3, 4, 5, 6, 9}, 4},
    };
    for (const auto& [tokens, expected] : cases) EXPECT_EQ(cached(tokens), expected);
}

TEST_F(PrefixCacheTest, SaltsNeverMatch) {
    compute(range(0, 4), "a");
    EXPECT_EQ(cached(range(0, 4)), 0);
    EXPECT_EQ(cached(range(0, 4), "b"), 0);
    compute(range(0, 4), "b");
    compute(range(0, 4));
    EXPECT_EQ(cache.cached_tokens(), 12);
    cache.flush();
    compute(range(0, 4), "c");  // takes a root that was used before
    EXPECT_EQ(cached(range(0, 4), "a"), 0);
    EXPECT_EQ(cached(range(0, 4), "c"), 4);
}

TEST_F(PrefixCacheTest, ASequenceHoldsWhatItAcquires) {
    compute(range(0, 8));
    EXPECT_EQ(cache.evictable_tokens(), 8);
    std::vector<int32_t> first, second;
    EXPECT_EQ(cache.acquire("", range(0, 6), first), 4);
    EXPECT_EQ(cache.evictable_tokens(), 4);
    EXPECT_EQ(cache.acquire("", range(0, 9), second), 8);
    EXPECT_EQ(second[0], first[0]);
    EXPECT_EQ(cache.evictable_tokens(), 0);
    EXPECT_EQ(cache.flush(), 0);
    EXPECT_EQ(kv.free_tokens(), 6 * 4);
    std::vector<int32_t> rest;
    EXPECT_FALSE(kv.extend(rest, 7));
    EXPECT_TRUE(kv.extend(rest, 6));
    EXPECT_EQ(cached(range(0, 8)), 8);
    kv.release(second);
    EXPECT_EQ(cache.evictable_tokens(), 4);
    EXPECT_TRUE(kv.extend(rest, 7));
    EXPECT_EQ(cached(range(0, 8)), 4);
    kv.release(first);
    EXPECT_EQ(cache.flush(), 4);
    kv.release(rest);
    EXPECT_EQ(kv.pool(0).num_free(), 8);
}

TEST_F(PrefixCacheTest, BranchesShareTheirPrefix) {
    std::vector<int32_t> left = range(0, 12), right = range(0, 12);
    right[8] = 99;
    compute(left);
    compute(right);
    EXPECT_EQ(cache.cached_tokens(), 16);
    const PrefixCache::Match a = cache.match("", left), b = cache.match("", right);
    EXPECT_EQ(a.num_tokens, 12);
    EXPECT_EQ(b.num_tokens, 12);
    EXPECT_NE(a.page, b.page);
    EXPECT_EQ(cache.parent(a.page), cache.parent(b.page));
    EXPECT_EQ(cache.parent(cache.parent(cache.parent(a.page))), -1);
}

TEST_F(PrefixCacheTest, DuplicatesAreSwappedForTheTreesBlocks) {
    std::vector<int32_t> first = fresh(2), second = fresh(3), third = fresh(2);
    const std::vector<int32_t> trees = first;
    EXPECT_EQ(cache.insert("", range(0, 8), first), 0);
    EXPECT_EQ(first, trees);
    EXPECT_EQ(cache.insert("", range(0, 12), second), 8);
    EXPECT_EQ(second[0], trees[0]);
    EXPECT_EQ(second[1], trees[1]);
    EXPECT_EQ(kv.pool(0).num_free(), 3);
    const std::vector<int32_t> old = third;
    std::vector<PrefixCache::Placed> replaced;
    EXPECT_EQ(cache.insert("", range(0, 8), third, &replaced), 8);
    EXPECT_EQ(third, trees);
    EXPECT_EQ(replaced, (std::vector<PrefixCache::Placed>{{0, old[0]}, {0, old[1]}}));
    EXPECT_EQ(kv.pool(0).num_free(), 3);
    for (const auto& [rank, block] : replaced) kv.release(rank, block);
    EXPECT_EQ(cache.insert("", range(0, 8), third), 8);  // again: nothing to do
    kv.release(first);
    kv.release(third);
    EXPECT_EQ(cache.evictable_tokens(), 0);
    kv.release(second);
    EXPECT_EQ(cache.evictable_tokens(), 12);
}

TEST_F(PrefixCacheTest, TheLeastRecentlyUsedLeafGoesFirst) {
    compute(range(0, 8));
    compute(range(100, 108));
    compute(range(0, 4));  // used again: only its first page
    std::vector<int32_t> blocks = fresh(4);
    const auto step = [&](int num_blocks, int left, int right) {
        ASSERT_TRUE(kv.extend(blocks, num_blocks));
        EXPECT_EQ(cached(range(0, 8)), left);
        EXPECT_EQ(cached(range(100, 108)), right);
    };
    step(4, 8, 8);
    step(5, 4, 8);
    step(6, 4, 4);
    step(7, 4, 0);
    EXPECT_EQ(cache.evicted_tokens(), 12u);
    step(8, 0, 0);
    EXPECT_FALSE(kv.extend(blocks, 9));
}

TEST_F(PrefixCacheTest, LeavesNothingBehind) {
    {
        KvBlocks other({.num_blocks = 3, .page_size = 2, .cp = 2});
        std::vector<int32_t> blocks;
        {
            PrefixCache tree(other);
            ASSERT_TRUE(other.extend(blocks, 3));
            tree.insert("x", range(0, 6), blocks);
        }
        other.release(blocks);
        EXPECT_EQ(other.free_tokens(), other.capacity());
    }
}

using PrefixCacheDeathTest = Fixture;

TEST_F(PrefixCacheDeathTest, MisuseIsABug) {
    std::vector<int32_t> blocks = fresh(1);
    EXPECT_DEATH(cache.insert("", range(0, 8), blocks), "8 tokens, 1 blocks");
    EXPECT_DEATH(cache.acquire("", range(0, 8), blocks), "1 blocks");
    cache.insert("", range(0, 4), blocks);
    EXPECT_DEATH(cache.insert("", range(4, 8), blocks), "is in the tree already");
}

struct FileTier : testing::Test {
    KvBlocks kv{{.num_blocks = 3, .page_size = 4}};
    CopiesMade next{.num_good = 100};
    int num_made = 0;
    PrefixCache cache{kv, {.num_file_slots = 3, .make_copies = [this](auto copies) {
                               num_made += static_cast<int>(copies.size());
                               return CopiesMade{std::min(next.num_good, copies.size()),
                                                 next.file_works};
                           }}};
    const std::vector<int32_t> tokens = range(0, 12);
    std::vector<int32_t> blocks;

    // Three pages are computed and evicted, and a sequence needs them again.
    int restore_after_eviction() {
        EXPECT_TRUE(kv.extend(blocks, 3));
        cache.insert("", tokens, blocks);
        kv.release(blocks);
        EXPECT_TRUE(kv.extend(blocks, 3));
        kv.release(blocks);
        EXPECT_EQ(cache.match("", tokens).num_lower_tokens, 12);
        EXPECT_EQ(cache.acquire("", tokens, blocks), 0);
        EXPECT_TRUE(kv.extend(blocks, 3));
        return cache.restore("", tokens, blocks, 0);
    }
};

TEST_F(FileTier, WhatIsListedIsCopiedBeforeAPageIsRead) {
    EXPECT_EQ(restore_after_eviction(), 12);
    EXPECT_EQ(num_made, 6);
    EXPECT_TRUE(cache.take_copies().empty());
    EXPECT_EQ(cache.restored_tokens(Tier::kFile), 12u);
}

TEST_F(FileTier, ALostPageIsComputedAndThenWhatFollowsItIsFound) {
    next.num_good = 3 + 1;
    EXPECT_EQ(restore_after_eviction(), 4);
    EXPECT_EQ(cache.match("", tokens).num_tokens, 4);
    EXPECT_EQ(cache.match("", tokens).num_lower_tokens, 0);
    EXPECT_EQ(cache.lost_pages(), 1u);
    cache.insert("", range(0, 8), blocks);
    EXPECT_EQ(cache.match("", tokens).num_tokens, 8);
    EXPECT_EQ(cache.match("", tokens).num_lower_tokens, 4);
}

TEST_F(FileTier, AFileThatIsOffIsForgotten) {
    next = {.num_good = 3, .file_works = false};
    EXPECT_EQ(restore_after_eviction(), 0);
    EXPECT_EQ(cache.tokens_in(Tier::kFile), 0);
    kv.release(blocks);
    next = {.num_good = 100};
    EXPECT_TRUE(kv.extend(blocks, 3));
    cache.insert("", tokens, blocks);
    kv.release(blocks);
    EXPECT_TRUE(kv.extend(blocks, 3));
    EXPECT_EQ(cache.match("", tokens).num_lower_tokens, 0) << "nothing goes there any more";
}

}  // namespace
}  // namespace aerie::cache
