#include "model/step_layout.h"

#include <numeric>

namespace aerie::model {
namespace {

constexpr int kPage = 4;

StepLimits limits(int64_t tile_rows) {
    return {.max_rows = 64,
            .tile_rows = tile_rows,
            .max_logits_rows = 64,
            .max_position = 1000,
            .vocab_size = 1000,
            .num_blocks = 300,
            .page_size = kPage};
}

// Sequences of the given lengths that begin at the given positions, with tables for cp_size pools.
struct Step {
    Step(std::vector<std::pair<int64_t, int64_t>> rows_and_positions, std::vector<int64_t> begins,
         int cp_size)
        : begins(std::move(begins)) {
        int64_t row = 0;
        int32_t next_block = 0;
        blocks.resize(rows_and_positions.size());
        tables.resize(rows_and_positions.size());
        for (size_t s = 0; s < rows_and_positions.size(); ++s) {
            const auto [num_rows, position] = rows_and_positions[s];
            blocks[s].resize(static_cast<size_t>(cp_size));
            for (int64_t b = 0; b * kPage < position + num_rows; ++b)
                blocks[s][static_cast<size_t>(b % cp_size)].push_back(next_block++);
            tables[s].assign(blocks[s].begin(), blocks[s].end());
            sequences.push_back({row, num_rows, position, tables[s]});
            row += num_rows;
        }
        tokens.resize(static_cast<size_t>(row));
        std::iota(tokens.begin(), tokens.end(), 100);
    }
    StepInput input() const {
        return {.tokens = tokens, .sequences = sequences, .microbatch_begin = begins};
    }
    std::vector<int32_t> tokens;
    std::vector<int64_t> begins;
    std::vector<std::vector<std::vector<int32_t>>> blocks;
    std::vector<std::vector<std::span<const int32_t>>> tables;
    std::vector<SequenceSlice> sequences;
};

TEST(StepLayout, EveryRowHasOneOwnerAndSharesAreEven) {
    for (int tp_size : {1, 2, 3}) {
        for (int cp_size : {1, 2}) {
            for (int64_t tile_rows : {1, 5, 16, 64}) {
                const Step step({{1, 9}, {30, 0}, {7, 100}}, {0, 11, 12}, cp_size);
                std::vector<int> owned(step.tokens.size(), 0);
                for (int rank = 0; rank < tp_size * cp_size; ++rank) {
                    StepLayout layout({rank % tp_size, tp_size, rank / tp_size, cp_size},
                                      limits(tile_rows));
                    ASSERT_TRUE(layout.build(step.input()).ok());
                    for (size_t row = 0; row < owned.size(); ++row) {
                        const auto owner = layout.owner_of(static_cast<int64_t>(row));
                        if (owner.rank != rank) continue;
                        ++owned[row];
                        EXPECT_EQ(layout.own_tokens()[owner.own_row], step.tokens[row]);
                        EXPECT_EQ(layout.own_positions()[owner.own_row], layout.positions()[row]);
                    }
                    EXPECT_LE(layout.num_own_rows(), max_own_rows(64, tile_rows, tp_size * cp_size));
                    for (int64_t tile = 0; tile < layout.tiles_of(2).end; ++tile) {
                        const int64_t rows = layout.tile(tile).size();
                        const int64_t own = layout.share(tile, rank / tp_size, rank % tp_size).size();
                        EXPECT_LE(rows, tile_rows);
                        EXPECT_LE(own, (rows + tp_size * cp_size - 1) / (tp_size * cp_size));
                    }
                }
                EXPECT_EQ(owned, std::vector<int>(owned.size(), 1));
            }
        }
    }
}

TEST(StepLayout, PositionsSlotsAndPartsOfSequences) {
    const Step step({{3, 6}, {5, 0}}, {0, 4}, 2);
    StepLayout layout({0, 1, 1, 2}, limits(3));
    ASSERT_TRUE(layout.build(step.input()).ok());
    const std::vector<int32_t> positions(layout.positions(), layout.positions() + 8);
    EXPECT_EQ(positions, (std::vector<int32_t>{6, 7, 8, 0, 1, 2, 3, 4}));
    // Blocks 0 1 2 of the first sequence, 3 4 of the second; cp rank 1 holds 1 and 4.
    const std::vector<int64_t> slots(layout.slots(), layout.slots() + 8);
    EXPECT_EQ(slots, (std::vector<int64_t>{6, 7, -1, -1, -1, -1, -1, 16}));
    ASSERT_EQ(layout.tiles_of(0).size(), 2);  // rows 0-2, 3
    ASSERT_EQ(layout.tiles_of(1).size(), 2);  // rows 4-6, 7
    ASSERT_EQ(layout.parts(3).size(), 1u);
    const auto last = layout.sequences(3, false);
    ASSERT_EQ(last.size(), 1u);
    EXPECT_EQ(last[0].first_row, 0);
    EXPECT_EQ(last[0].num_rows, 1);
    EXPECT_EQ(last[0].first_position, 4);
    EXPECT_EQ(last[0].blocks, step.tables[1][1].data());
}

// Rows that begin a sequence, or are many beside the context, are expanded; a decode step never is.
TEST(StepLayout, ManyRowsForTheContextAreExpanded) {
    const Step step({{20, 0}, {1, 30}, {1, 9}, {12, 400}, {8, 20}}, {0}, 2);
    StepLimits with = limits(64);
    with.pairs_to_expand = 12.1;
    StepLayout layout({0, 1, 1, 2}, with), never({0, 1, 1, 2}, limits(64));
    ASSERT_TRUE(layout.build(step.input()).ok() && never.build(step.input()).ok());
    ASSERT_EQ(never.parts(0).size(), 1u);
    EXPECT_FALSE(never.parts(0)[0].expanded);
    const auto parts = layout.parts(0);
    // 12 rows at 400 meet 4878 pairs: more than 12.1 for each of the 400. 8 at 20 meet 196 of 242.
    const std::vector<std::tuple<int64_t, int64_t, bool>> expected = {
        {0, 20, true}, {20, 22, false}, {22, 34, true}, {34, 42, false}};
    ASSERT_EQ(parts.size(), expected.size());
    for (size_t i = 0; i < parts.size(); ++i) {
        EXPECT_EQ(std::tuple(parts[i].rows.begin, parts[i].rows.end, parts[i].expanded),
                  expected[i])
            << i;
    }
    const auto first_rows = [&](bool expanded) {
        std::vector<int32_t> rows;
        for (const auto& s : layout.sequences(0, expanded)) rows.push_back(s.first_row);
        return rows;
    };
    EXPECT_EQ(first_rows(true), (std::vector<int32_t>{0, 22}));
    EXPECT_EQ(first_rows(false), (std::vector<int32_t>{20, 21, 34}));
    EXPECT_EQ(never.sequences(0, false).size(), 5u);
    EXPECT_TRUE(never.sequences(0, true).empty());
    // cp rank 1 has the rows from 21.
    EXPECT_EQ(layout.in_cp_share(parts[0], 0).size(), 0);
    EXPECT_EQ(layout.in_cp_share(parts[1], 0).begin, 0);
    EXPECT_EQ(layout.in_cp_share(parts[1], 0).end, 1);
    EXPECT_EQ(layout.in_cp_share(parts[3], 0).end, 21);
}

}  // namespace
}  // namespace aerie::model
