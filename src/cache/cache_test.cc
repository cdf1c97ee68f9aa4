#include <gtest/gtest.h>

#include "cache/kv_blocks.h"

namespace aerie::cache {
namespace {

TEST(BlockPool, AllocatesAllOrNothing) {
    BlockPool pool(4);
    std::vector<int32_t> blocks;
    EXPECT_TRUE(pool.allocate(3, blocks));
    EXPECT_EQ(blocks, (std::vector<int32_t>{0, 1, 2}));
    EXPECT_FALSE(pool.allocate(2, blocks));
    EXPECT_EQ(blocks.size(), 3u);
    EXPECT_TRUE(pool.allocate(0, blocks));
    EXPECT_TRUE(pool.allocate(1, blocks));
    EXPECT_EQ(pool.num_free(), 0);
    EXPECT_EQ(pool.num_used(), 4);
}

TEST(BlockPool, IsFreeWithTheLastHolder) {
    BlockPool pool(2);
    std::vector<int32_t> blocks;
    ASSERT_TRUE(pool.allocate(1, blocks));
    pool.share(blocks[0]);
    EXPECT_EQ(pool.num_holders(blocks[0]), 2);
    pool.release(blocks[0]);
    EXPECT_EQ(pool.num_free(), 1);
    pool.release(blocks[0]);
    EXPECT_EQ(pool.num_free(), 2);
}

TEST(BlockPoolDeathTest, FreesNothingTwice) {
    BlockPool pool(2);
    std::vector<int32_t> blocks;
    ASSERT_TRUE(pool.allocate(1, blocks));
    pool.release(blocks[0]);
    EXPECT_DEATH(pool.release(blocks[0]), "is not in use");
    EXPECT_DEATH(pool.share(1), "is not in use");
    EXPECT_DEATH(pool.release(2), "is not in use");
    EXPECT_DEATH(pool.release(-1), "is not in use");
}

TEST(KvBlocks, PutsBlocksOnTheRanksInTurn) {
    KvBlocks kv({.num_blocks = 4, .page_size = 16, .cp = 3});
    EXPECT_EQ(kv.capacity(), 4 * 3 * 16);
    std::vector<int32_t> first, second;
    ASSERT_TRUE(kv.extend(first, 4));  // ranks 0 1 2 0
    EXPECT_EQ(first, (std::vector<int32_t>{0, 0, 0, 1}));
    EXPECT_EQ(kv.pool(0).num_used(), 2);
    EXPECT_EQ(kv.pool(2).num_used(), 1);
    EXPECT_EQ(kv.used_tokens(), 4 * 16);
    EXPECT_EQ(kv.free_tokens(), 2 * 3 * 16);  // rank 0 has two left
    ASSERT_TRUE(kv.extend(second, 6));
    EXPECT_EQ(kv.free_tokens(), 0);
    EXPECT_FALSE(kv.extend(first, 7));  // rank 0 is full, 1 and 2 are not
    EXPECT_EQ(first.size(), 4u);
    EXPECT_TRUE(kv.extend(first, 6));
    EXPECT_TRUE(kv.extend(first, 2));  // is long enough
    EXPECT_EQ(first.size(), 6u);
    kv.release(second);
    EXPECT_TRUE(second.empty());
    kv.release(first);
    EXPECT_EQ(kv.free_tokens(), kv.capacity());
}

TEST(KvBlocks, DemandAddsUp) {
    KvBlocks kv({.num_blocks = 2, .page_size = 4, .cp = 2});
    KvBlocks::Demand demand = kv.no_demand();
    demand.add(0, 1);  // rank 0
    demand.add(2, 3);  // rank 0
    EXPECT_TRUE(kv.fits(demand));
    demand.add(1, 2);  // rank 1
    EXPECT_TRUE(kv.fits(demand));
    demand.add(3, 5);  // ranks 1 and 0
    EXPECT_FALSE(kv.fits(demand));
}

// Whatever room free_tokens() shows, a sequence of that many tokens fits.
TEST(KvBlocks, FreeTokensCanBeUsed) {
    for (const int cp : {1, 2, 3}) {
        for (int taken = 0; taken < 6; ++taken) {
            KvBlocks kv({.num_blocks = 4, .page_size = 8, .cp = cp});
            std::vector<int32_t> other, mine;
            ASSERT_TRUE(kv.extend(other, std::min(taken, 4)));
            EXPECT_TRUE(kv.extend(mine, kv.blocks_for(kv.free_tokens()))) << cp << " " << taken;
        }
    }
}

}  // namespace
}  // namespace aerie::cache
