#include <gtest/gtest.h>

#include <map>

#include "kernels/cuda/attention_test_support.h"
#include "kernels/cuda/expand_plan.h"

namespace aerie::kernels {
namespace {

using namespace testing;
using cuda::ExpandPlan;

constexpr int kWidth = 576, kLatent = 512, kKeys = 192, kValues = 128, kHead = 256;
constexpr float kScale = 0.02f;

// ---- the plan, which needs no card

struct Planned {
    ExpandPlan::Limits limits;
    std::vector<MlaSequence> sequences;
    std::vector<std::vector<int32_t>> blocks;  // of sequence i: 1000000 · i and on
    ExpandPlan plan;
    std::vector<int32_t> ints;

    Planned(const ExpandPlan::Limits& l, const Lengths& lengths) : limits(l), plan(l) {
        int row = 3;  // rows of other forms lie before and between
        for (size_t i = 0; i < lengths.size(); ++i) {
            const auto [rows, position] = lengths[i];
            blocks.emplace_back((rows + position + l.page_size - 1) / l.page_size);
            std::iota(blocks.back().begin(), blocks.back().end(), 1000000 * static_cast<int>(i));
            sequences.push_back({row, rows, position, blocks.back().data()});
            row += rows + 1;
        }
        ints.assign(plan.max_ints(), -99);
        const int64_t used = plan.make(sequences, ints.data());
        EXPECT_LE(used, plan.max_ints());
    }

    template <typename T>
    std::span<const T> items(const ExpandPlan::Part& part) const {
        return {reinterpret_cast<const T*>(ints.data() + part.at), static_cast<size_t>(part.count)};
    }
    // Which token lies at a place of a piece.
    std::pair<int, int> token_at(const ExpandPlan::Piece& piece, int token) const {
        const auto segments = items<ExpandPlan::Segment>(piece.segments);
        const auto* s = &segments[0];
        for (const auto& other : segments)
            if (other.begin <= token) s = &other;
        const int position = s->position + token - s->begin;
        const int block = ints[s->pages + position / limits.page_size];
        EXPECT_EQ(block % 1000000, position / limits.page_size);
        return {block / 1000000, position};
    }
    // Every row sees its past once, the first part of it first.
    void check() const {
        std::map<int, int> seen;  // by row: positions below it
        std::map<int, int> of_row;
        for (size_t i = 0; i < sequences.size(); ++i)
            for (int r = 0; r < sequences[i].num_rows; ++r)
                of_row[sequences[i].first_row + r] = static_cast<int>(i);
        for (const ExpandPlan::Piece& piece : plan.pieces()) {
            ASSERT_LE(piece.num_tokens, limits.piece_tokens);
            std::map<int, bool> joined_rows;
            for (bool joined : {false, true})
                for (bool causal : {false, true})
                    for (const auto& tile : items<ExpandPlan::Tile>(piece.tiles[joined][causal]))
                        for (int i = 0; i < tile.num_rows; ++i) {
                            const int row = tile.first_row + i;
                            ASSERT_TRUE(of_row.contains(row));
                            const int tokens =
                                causal ? tile.num_tokens - tile.num_rows + i + 1 : tile.num_tokens;
                            ASSERT_GT(tokens, 0);
                            ASSERT_LE(tile.first_token + tile.num_tokens, piece.num_tokens);
                            ASSERT_EQ(joined, seen.contains(row)) << row;
                            joined_rows[row] = joined;
                            ASSERT_EQ(token_at(piece, tile.first_token),
                                      std::pair(of_row[row], seen[row]));
                            seen[row] += tokens;
                            ASSERT_EQ(token_at(piece, tile.first_token + tokens - 1),
                                      std::pair(of_row[row], seen[row] - 1));
                        }
            for (const auto& [row, joined] : joined_rows)
                ASSERT_EQ(joined, piece.first_joined_row <= row &&
                                      row < piece.first_joined_row + piece.num_joined_rows);
        }
        for (const MlaSequence& s : sequences)
            for (int i = 0; i < s.num_rows; ++i)
                ASSERT_EQ(seen[s.first_row + i], s.first_position + i + 1);
    }
};

TEST(ExpandPlan, EveryRowSeesItsPastOnce) {
    for (int page : {1, 16, 64})
        for (int piece : {256, 300, 1000, 16384}) {
            SCOPED_TRACE(fmt::format("pages of {}, pieces of {}", page, piece));
            const ExpandPlan::Limits limits{
                .page_size = page, .max_rows = 3000, .max_blocks = 30000, .piece_tokens = piece};
            for (const Lengths& lengths :
                 {Lengths{{1, 0}}, Lengths{{2000, 0}}, Lengths{{2, 9998}}, Lengths{{500, 137}},
                  Lengths{{100, 0}, {156, 0}, {1, 300}, {700, 90}, {128, 128}, {3, 0}, {129, 4000}},
                  Lengths(300, {3, 20})})
                Planned(limits, lengths).check();
        }
}

TEST(ExpandPlan, WhatFitsAPieceIsNotCut) {
    const Planned p({.max_rows = 2000, .max_blocks = 1000, .piece_tokens = 512},
                    {{300, 0}, {200, 100}, {212, 300}, {100, 700}, {200, 0}});
    std::vector<int> tokens;
    for (const auto& piece : p.plan.pieces()) tokens.push_back(piece.num_tokens);
    EXPECT_EQ(tokens, (std::vector<int>{300, 300, 512, 512, 488}));
    EXPECT_EQ(p.plan.pieces()[3].num_joined_rows, 0);
    EXPECT_EQ(p.plan.pieces()[4].num_joined_rows, 100);
}

// ---- on the card

struct Case {
    int heads = 8;
    int page = 64;
    int piece = 4096;
    bool fp8_rows = false;
    Lengths sequences;
};

// What makes a head's keys and values of latents.
struct Expansion {
    Fp8Tensor kv_b;
    LinearWeight on_card;
    std::vector<LinearWeight> keys, values;

    Expansion(int heads, bool keep_fp8) : kv_b(int64_t{heads} * kHead, kLatent, 7) {
        LinearSource s = kv_b.source();
        on_card = pack_linear(s, DType::kBF16, keep_fp8, Device::kCuda);
        for (int h = 0; h < heads; ++h) {
            s.row_begin = h * kHead;
            s.row_end = s.row_begin + kValues;
            keys.push_back(pack_linear(s, DType::kBF16, false));
            s.row_begin = s.row_end;
            s.row_end = (h + 1) * kHead;
            values.push_back(pack_linear(s, DType::kBF16, false));
        }
    }
};

MlaArgs args_of(const Case& c, ConstView q, const void* kv, View out) {
    return {.q = q,
            .kv_layer = kv,
            .page_size = c.page,
            .heads = c.heads,
            .scale = kScale,
            .sequences = {},
            .out = out};
}

Tensor run_on_card(const Case& c, const PagedKv& kv, const Tensor& q, const Expansion& e) {
    Stream stream(nullptr, Device::kCuda);
    stream.set_quantises_rows(c.fp8_rows);
    const Tensor pool = on_card(kv.memory), queries = on_card(q);
    Tensor out = on_card(poisoned(DType::kBF16, q.rows(), c.heads * kValues));
    MlaStep step(
        {.max_rows = q.rows(), .max_blocks = kv.memory.rows() / c.page, .piece_tokens = c.piece},
        {.heads = c.heads, .page_size = c.page});
    step.prepare(stream, {}, 0, sequences_of(c.sequences, kv));
    MlaArgs args = args_of(c, queries.view(), pool.view().data, out.view());
    args.step = &step;
    args.expand_kv = &e.on_card;
    mla_attention(stream, args);
    card::synchronize(stream.queue());
    return on_host(out);
}

Tensor run_on_cpu(const Case& c, const PagedKv& kv, const Tensor& q, const Expansion& e) {
    ThreadPool threads({.num_workers = 7});
    Stream stream(&threads);
    Tensor out(DType::kF32, q.rows(), c.heads * kValues);
    const std::vector<MlaSequence> sequences = sequences_of(c.sequences, kv);
    MlaArgs args = args_of(c, q.view(), kv.memory.view().data, out.view());
    args.sequences = sequences;
    args.expand_k = e.keys.data();
    args.expand_v = e.values.data();
    mla_attention(stream, args);
    return out;
}

Tensor queries_of(const Case& c) {
    return random_tensor(DType::kBF16, rows_of(c.sequences), int64_t{c.heads} * kKeys, 9);
}

void check_against_cpu(Case c) {
    SCOPED_TRACE(fmt::format("{} heads, pages of {}, pieces of {}, {} sequences", c.heads, c.page,
                             c.piece, c.sequences.size()));
    const PagedKv kv = make_paged_kv(c.sequences, c.page);
    const Tensor q = queries_of(c);
    const Expansion fp8(c.heads, true), bf16(c.heads, false);
    const Tensor want = run_on_cpu(c, kv, q, bf16);
    EXPECT_LT(relative_error(run_on_card(c, kv, q, bf16).view(), want.view()), 1e-2);
    EXPECT_LT(relative_error(run_on_card(c, kv, q, fp8).view(), want.view()), 1e-2);
    c.fp8_rows = true;
    EXPECT_LT(relative_error(run_on_card(c, kv, q, fp8).view(), want.view()), 6e-2);
}

using ExpandedOnCard = OnCard;

TEST_F(ExpandedOnCard, IsTheCpus) {
    check_against_cpu({.heads = 128, .sequences = {{300, 0}}});
    check_against_cpu({.heads = 32, .sequences = {{200, 700}}});
    check_against_cpu({.heads = 8, .page = 16, .sequences = {{1500, 0}}});
    check_against_cpu({.heads = 2, .page = 7, .sequences = {{2, 0}, {333, 1000}}});
    check_against_cpu({.heads = 1, .page = 1, .sequences = {{127, 1}, {128, 0}, {129, 127}}});
}

TEST_F(ExpandedOnCard, SequencesOfAStepAreTheCpus) {
    const Lengths ragged = {{300, 0}, {1, 1499}, {777, 0}, {128, 1968}, {5, 64}};
    check_against_cpu({.heads = 8, .sequences = ragged});
    check_against_cpu({.heads = 16, .page = 16, .piece = 2200, .sequences = ragged});
    check_against_cpu({.heads = 4, .sequences = Lengths(40, {33, 17})});
}

TEST_F(ExpandedOnCard, PiecesAreJoined) {
    check_against_cpu({.heads = 8, .piece = 256, .sequences = {{700, 0}}});
    check_against_cpu({.heads = 8, .piece = 256, .sequences = {{100, 999}, {30, 0}}});
    check_against_cpu(
        {.heads = 16, .page = 16, .piece = 300, .sequences = {{50, 0}, {400, 333}, {200, 0}}});
    check_against_cpu({.heads = 1, .piece = 512, .sequences = {{257, 1500}}});
}

// Both forms in one step, each beside the other's rows, which it leaves alone.
TEST_F(ExpandedOnCard, AMixedStepHasBothForms) {
    const Case c{.heads = 8, .sequences = {{1, 500}, {300, 20}, {1, 70}, {200, 0}, {2, 900}}};
    const PagedKv kv = make_paged_kv(c.sequences, c.page);
    const Tensor q = queries_of(c), queries = on_card(q), pool = on_card(kv.memory);
    const Tensor absorbed_q =
        on_card(random_tensor(DType::kBF16, q.rows(), int64_t{c.heads} * kWidth, 10));
    const Expansion e(c.heads, true);
    const std::vector<MlaSequence> all = sequences_of(c.sequences, kv);
    const std::vector<MlaSequence> expanded = {all[1], all[3]}, absorbed = {all[0], all[2], all[4]};
    const auto run = [&](std::span<const MlaSequence> a, std::span<const MlaSequence> b) {
        MlaStep step({.max_rows = q.rows(), .max_blocks = 100, .piece_tokens = 1024},
                     {.heads = c.heads, .deterministic = true});
        step.prepare(*stream_, a, 0, b);
        Tensor values = on_card(poisoned(DType::kBF16, q.rows(), c.heads * kValues));
        Tensor latents = on_card(poisoned(DType::kBF16, q.rows(), c.heads * kLatent));
        MlaArgs args = args_of(c, queries.view(), pool.view().data, values.view());
        args.step = &step;
        args.expand_kv = &e.on_card;
        if (!b.empty()) mla_attention(*stream_, args);
        args = args_of(c, absorbed_q.view(), pool.view().data, latents.view());
        args.step = &step;
        if (!a.empty()) mla_attention(*stream_, args);
        wait();
        return std::pair(on_host(values), on_host(latents));
    };
    const auto both = run(absorbed, expanded);
    EXPECT_TRUE(same_bits(both.first.view(), run({}, expanded).first.view()));
    EXPECT_TRUE(same_bits(both.second.view(), run(absorbed, {}).second.view()));
    EXPECT_TRUE(std::isnan(get(both.first.view(), 0, 0)));
    EXPECT_FALSE(std::isnan(get(both.first.view(), 1, 0)));
    EXPECT_FALSE(std::isnan(get(both.second.view(), 0, 0)));
    EXPECT_TRUE(std::isnan(get(both.second.view(), 1, 0)));
}

}  // namespace
}  // namespace aerie::kernels
