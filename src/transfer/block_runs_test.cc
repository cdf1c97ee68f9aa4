#include "transfer/block_runs.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <tuple>

namespace aerie::transfer {
namespace {

std::vector<BlockRun> runs(const BlockTable& local, const BlockTable& remote, int local_cp, int begin,
                           int end) {
    std::vector<BlockRun> out;
    append_runs(local, remote, local_cp, 4, begin, end, out);
    return out;
}

TEST(BlockRuns, NeighboursOnBothSidesAreOneRun) {
    const std::vector<int32_t> local = {5, 6, 7, 2}, remote = {1, 2, 3, 4};
    EXPECT_EQ(runs({local}, {remote}, 0, 0, 14),
              (std::vector<BlockRun>{{0, 0, 5, 1, 12}, {0, 0, 2, 4, 2}}));
    // A table may begin in the middle: what lies before is not to be touched.
    const std::vector<int32_t> later = {9, 3};
    EXPECT_EQ(runs({local}, {.blocks = later, .first_block = 1}, 0, 4, 12),
              (std::vector<BlockRun>{{0, 0, 6, 9, 4}, {0, 0, 7, 3, 4}}));
    EXPECT_TRUE(runs({local}, {remote}, 0, 8, 8).empty());
}

TEST(BlockRuns, ManyRanksOnEitherSide) {
    const std::vector<int32_t> local = {0, 0, 1, 1}, remote = {4, 5, 6, 7};
    EXPECT_EQ(runs({local, 0, 2}, {remote, 0, 1}, 0, 0, 16),
              (std::vector<BlockRun>{{0, 0, 0, 4, 4}, {0, 0, 1, 6, 4}}));
    EXPECT_EQ(runs({remote, 0, 1}, {local, 0, 2}, 0, 0, 16),
              (std::vector<BlockRun>{{0, 0, 4, 0, 4}, {0, 0, 6, 1, 4}, {0, 1, 5, 0, 4}, {0, 1, 7, 1, 4}}));
    EXPECT_EQ(runs({local, 0, 2}, {local, 0, 2}, 1, 0, 15), (std::vector<BlockRun>{{1, 1, 0, 0, 7}}));
}

// Every token arrives once, at its own place, whatever the layouts are.
TEST(BlockRuns, CopiesEachTokenToItsPlace) {
    std::mt19937 random(1);
    const int page = 4;
    for (int round = 0; round < 500; ++round) {
        const int local_cp = 1 + round % 3, remote_cp = 1 + round / 3 % 4, num_blocks = 1 + round % 17;
        const auto table = [&](int cp) {
            std::vector<int32_t> blocks(num_blocks);
            std::vector<std::vector<int32_t>> unused(cp, std::vector<int32_t>(40));
            for (auto& pool : unused) {
                std::iota(pool.begin(), pool.end(), 0);
                if (round % 2) std::shuffle(pool.begin(), pool.end(), random);
            }
            for (int b = 0; b < num_blocks; ++b) {
                blocks[b] = unused[b % cp].front();
                unused[b % cp].erase(unused[b % cp].begin());
            }
            return blocks;
        };
        const auto from = table(local_cp), to = table(remote_cp);
        const int first = static_cast<int>(random() % num_blocks);
        const int begin = first * page;
        const int end = begin + static_cast<int>(random() % (num_blocks * page - begin + 1));
        std::vector<BlockRun> found;
        for (int c = 0; c < local_cp; ++c) {
            append_runs({from, 0, local_cp},
                        {.blocks = std::span(to).subspan(first), .first_block = first, .cp = remote_cp}, c,
                        page, begin, end, found);
        }
        std::map<std::tuple<int, int>, std::tuple<int, int>> arrived;  // to (pool, slot) from (pool, slot)
        for (const BlockRun& run : found) {
            for (int t = 0; t < run.num_tokens; ++t) {
                const auto [at, fresh] = arrived.insert({{run.remote_cp, run.remote * page + t},
                                                         {run.local_cp, run.local * page + t}});
                EXPECT_TRUE(fresh);
            }
        }
        ASSERT_EQ(static_cast<int>(arrived.size()), end - begin);
        for (int t = begin; t < end; ++t) {
            const int b = t / page;
            EXPECT_EQ((arrived[{b % remote_cp, to[b] * page + t % page}]),
                      (std::tuple{b % local_cp, from[b] * page + t % page}));
        }
    }
}

}  // namespace
}  // namespace aerie::transfer
