#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "kernels/cuda/attention_test_support.h"
#include "kernels/cuda/mla_plan.h"
#include "tensor/cuda/check.h"

namespace aerie::kernels {
namespace {

using namespace testing;
using cuda::MlaPlan;

constexpr int kLatent = 512, kRope = 64, kWidth = kLatent + kRope;
constexpr float kScale = 0.1f;

// ---- the plan, which needs no card

struct Planned {
    MlaPlan::Limits limits;
    std::vector<MlaSequence> sequences;
    std::vector<int32_t> blocks;  // of each, the same ones

    explicit Planned(const MlaPlan::Limits& l) : limits(l), blocks(l.max_blocks) {
        std::iota(blocks.begin(), blocks.end(), 7);
    }
    void add(int rows, int position) {
        const int first =
            sequences.empty() ? 0 : sequences.back().first_row + sequences.back().num_rows;
        sequences.push_back({first, rows, position, blocks.data()});
    }
    int64_t num_rows() const { return sequences.back().first_row + sequences.back().num_rows; }

    // Of each packed row of the step, the keys that the plan makes it see, and who merges it.
    void check() {
        MlaPlan plan(limits);
        const MlaPlan::Layout l = plan.layout(num_rows());
        std::vector<int32_t> ints(plan.max_ints(), -99);
        const int64_t used = plan.make(sequences, num_rows(), ints.data());
        ASSERT_LE(used, plan.max_ints());
        const int tile_rows = 64 * l.width;
        std::vector<int> seen(num_rows() * limits.heads), merged(seen.size());
        std::vector<bool> split(seen.size());
        int64_t heaviest = 0, all = 0;
        for (int team = 0; team < l.num_teams; ++team) {
            int64_t tokens = 0;
            for (int w = ints[l.work_begin + team]; w < ints[l.work_begin + team + 1]; ++w) {
                const auto of = [&](int64_t offset) { return ints[offset + w]; };
                ASSERT_EQ(of(l.kv_start) % 64, 0);
                ASSERT_EQ(ints[l.page_table + of(l.pages)], 7);
                tokens += of(l.kv_end) - of(l.kv_start);
                const int rows = std::min(tile_rows, of(l.q_len) * limits.heads - of(l.q_start));
                if (of(l.partial) >= 0) {
                    ASSERT_LE(of(l.partial) + rows, plan.max_partial_rows());
                }
                for (int i = 0; i < rows; ++i) {
                    const int row = of(l.q_row) * limits.heads + of(l.q_start) + i;
                    const int end =
                        of(l.kv_len) - of(l.q_len) + (of(l.q_start) + i) / limits.heads + 1;
                    seen[row] += std::max(0, std::min(end, of(l.kv_end)) - of(l.kv_start));
                    split[row] = of(l.partial) >= 0;
                }
            }
            heaviest = std::max(heaviest, tokens);
            all += tokens;
        }
        for (int block = 0; block < l.width * l.num_teams; ++block)
            for (int i = ints[l.merge_begin + block]; i < ints[l.merge_end + block]; ++i)
                ++merged[i];
        for (const MlaSequence& s : sequences)
            for (int i = 0; i < s.num_rows * limits.heads; ++i) {
                const int row = s.first_row * limits.heads + i;
                ASSERT_EQ(seen[row], s.first_position + i / limits.heads + 1) << row;
                ASSERT_EQ(merged[row], split[row] ? 1 : 0) << row;
                ASSERT_TRUE(limits.balanced || !split[row]);
            }
        if (limits.balanced) {
            EXPECT_LE(heaviest, 2 * (all / l.num_teams) + 512) << "of " << all << " tokens";
        }
    }
};

TEST(MlaPlan, EveryRowSeesItsPastOnceAndIsMergedByOne) {
    std::mt19937 random(3);
    for (bool balanced : {true, false})
        for (int heads : {1, 8, 16, 32, 64, 128})
            for (int kind = 0; kind < 6; ++kind) {
                SCOPED_TRACE(fmt::format("{} heads, kind {}", heads, kind));
                Planned p({.heads = heads,
                           .page_size = 16,
                           .max_rows = 3000,
                           .max_blocks = 60000,
                           .balanced = balanced});
                if (kind == 0) p.add(1, 0);
                if (kind == 1) p.add(1, 40000);
                if (kind == 2)
                    for (int i = 0; i < 128; ++i) p.add(1, static_cast<int>(random() % 5000));
                if (kind == 3) p.add(2700, 513);
                if (kind == 4)
                    for (int i = 0; i < 30; ++i)
                        p.add(1 + static_cast<int>(random() % 90),
                              static_cast<int>(random() % 9000));
                if (kind == 5) {
                    for (int i = 0; i < 900; ++i) p.add(1, static_cast<int>(random() % 100));
                    p.add(1, 100000);
                }
                p.check();
            }
}

TEST(MlaPlan, PlacesDependOnTheRowsAskedForAlone) {
    Planned few({.heads = 16, .max_rows = 64, .max_blocks = 1000});
    few.add(1, 5);
    MlaPlan plan(few.limits);
    std::vector<int32_t> ints(plan.max_ints());
    plan.make(few.sequences, 64, ints.data());
    const auto l = plan.layout(64);
    EXPECT_EQ(ints[l.work_begin + l.num_teams], 1);
    EXPECT_EQ(ints[l.page_table], 7);
}

// ---- on the card

struct Case {
    int heads = 16;
    int page = 64;
    bool deterministic = false;
    Lengths sequences;
};

struct Output {
    Tensor out, lse;
    Output(DType type, const Case& c, Device device)
        : out(type, rows_of(c.sequences), c.heads * kLatent, device),
          lse(DType::kF32, rows_of(c.sequences), c.heads, device) {}
};

MlaArgs args_of(const Case& c, ConstView q, const void* kv, Output& output) {
    return {.q = q,
            .kv_layer = kv,
            .page_size = c.page,
            .heads = c.heads,
            .scale = kScale,
            .sequences = {},
            .out = output.out.view(),
            .lse = output.lse.data<float>()};
}

MlaStep make_step(const Case& c, int64_t max_rows, int64_t max_blocks) {
    return MlaStep({.max_rows = max_rows, .max_blocks = max_blocks},
                   {.heads = c.heads, .page_size = c.page, .deterministic = c.deterministic});
}

Output run_on_card(const Case& c, const PagedKv& pool, const Tensor& q) {
    Stream stream(nullptr, Device::kCuda);
    const Tensor kv = on_card(pool.memory), queries = on_card(q);
    Output r(DType::kBF16, c, Device::kCuda);
    MlaStep step = make_step(c, rows_of(c.sequences), pool.memory.rows() / c.page);
    step.prepare(stream, sequences_of(c.sequences, pool));
    MlaArgs args = args_of(c, queries.view(), kv.view().data, r);
    args.step = &step;
    mla_attention(stream, args);
    card::synchronize(stream.queue());
    Output host(DType::kBF16, c, Device::kCpu);
    host.out = on_host(r.out);
    host.lse = on_host(r.lse);
    return host;
}

void check_against_cpu(Case c) {
    SCOPED_TRACE(
        fmt::format("{} heads, pages of {}, {} sequences", c.heads, c.page, c.sequences.size()));
    const PagedKv pool = make_paged_kv(c.sequences, c.page);
    const Tensor q =
        random_tensor(DType::kBF16, rows_of(c.sequences), int64_t{c.heads} * kWidth, 9);
    ThreadPool threads({.num_workers = 7});
    Stream cpu(&threads);
    Output want(DType::kF32, c, Device::kCpu);
    const std::vector<MlaSequence> sequences = sequences_of(c.sequences, pool);
    MlaArgs args = args_of(c, q.view(), pool.memory.view().data, want);
    args.sequences = sequences;
    mla_attention(cpu, args);
    for (bool deterministic : {false, true}) {
        c.deterministic = deterministic;
        const Output got = run_on_card(c, pool, q);
        EXPECT_LT(relative_error(got.out.view(), want.out.view()), 1e-2) << deterministic;
        EXPECT_LT(relative_error(got.lse.view(), want.lse.view()), 1e-3) << deterministic;
    }
}

using MlaOnCard = OnCard;

TEST_F(MlaOnCard, DecodeIsTheCpus) {
    const Lengths lengths = {{1, 0},   {1, 62},   {1, 63},   {1, 64},
                             {1, 500}, {1, 1000}, {1, 4095}, {1, 4999}};
    check_against_cpu({.heads = 128, .sequences = lengths});
    check_against_cpu({.heads = 32, .sequences = lengths});
    check_against_cpu({.heads = 16, .page = 16, .sequences = lengths});
    check_against_cpu({.heads = 8, .page = 1, .sequences = lengths});
    check_against_cpu({.heads = 1, .page = 128, .sequences = lengths});
    check_against_cpu({.heads = 64, .page = 7, .sequences = {{1, 3000}}});
}

TEST_F(MlaOnCard, PrefillIsTheCpus) {
    check_against_cpu({.heads = 128, .sequences = {{40, 100}}});
    check_against_cpu({.heads = 16, .sequences = {{300, 0}}});
    check_against_cpu({.heads = 16, .page = 16, .sequences = {{200, 700}}});
    check_against_cpu({.heads = 8, .sequences = {{130, 0}, {129, 4800}}});
    check_against_cpu({.heads = 4, .sequences = {{2100, 30}}});
}

TEST_F(MlaOnCard, MixedStepsAreTheCpus) {
    const Lengths mixed = {{1, 2000}, {70, 0}, {1, 0}, {77, 1023}, {2, 4999}};
    check_against_cpu({.heads = 16, .sequences = mixed});
    check_against_cpu({.heads = 128, .page = 16, .sequences = mixed});
}

// A row of the whole prompt, of a chunk, alone, beside others and on other pages: the same bits.
TEST_F(MlaOnCard, DeterministicRowsDependOnTheirPastOnly) {
    for (int heads : {16, 128}) {
        const Case whole{.heads = heads, .deterministic = true, .sequences = {{900, 0}}};
        const PagedKv pool = make_paged_kv(whole.sequences, whole.page);
        const Tensor q = random_tensor(DType::kBF16, 900, int64_t{heads} * kWidth, 9);
        const Output want = run_on_card(whole, pool, q);
        for (int page : {64, 16})
            for (const auto& [first, rows] :
                 {std::pair{0, 1}, {63, 1}, {64, 2}, {500, 1}, {899, 1}, {100, 333}, {700, 200}})
                for (int beside : {0, 3, 40}) {
                    Case c{.heads = heads,
                           .page = page,
                           .deterministic = true,
                           .sequences = {{rows, first}}};
                    for (int i = 0; i < beside; ++i) c.sequences.push_back({1 + i % 2, 37 * i});
                    Tensor part(DType::kBF16, rows_of(c.sequences), q.cols());
                    fill_random(part.view(), 77);
                    std::memcpy(part.view().data, q.view().row(first),
                                rows * q.cols() * sizeof(BF16));
                    const Output got = run_on_card(c, make_paged_kv(c.sequences, page), part);
                    ASSERT_TRUE(same_bits(got.out.view().slice_rows(0, rows),
                                          want.out.view().slice_rows(first, first + rows)))
                        << heads << " heads, " << rows << " rows from " << first << " beside "
                        << beside << ", pages of " << page;
                }
    }
}

// Steps are planned while those before are still in the queue.
TEST_F(MlaOnCard, StepsInTheQueueKeepTheirPlans) {
    Stream stream(nullptr, Device::kCuda);
    const Case c{.heads = 128, .sequences = {{1, 4000}, {1, 300}, {1, 70}}};
    const PagedKv pool = make_paged_kv(c.sequences, c.page);
    const Tensor q = on_card(random_tensor(DType::kBF16, 3, int64_t{c.heads} * kWidth, 9));
    const Tensor kv = on_card(pool.memory);
    MlaStep step = make_step(c, 3, pool.memory.rows() / c.page);
    const auto run = [&](int i, Output& output, bool wait) {
        std::vector<MlaSequence> sequences = sequences_of(c.sequences, pool);
        for (MlaSequence& s : sequences) s.first_position = s.first_position * (9 - i) / 9;
        step.prepare(stream, sequences);
        MlaArgs args = args_of(c, q.view(), kv.view().data, output);
        args.step = &step;
        for (int layer = 0; layer < 20; ++layer) mla_attention(stream, args);
        if (wait) card::synchronize(stream.queue());
    };
    std::vector<Output> alone, queued;
    for (int i = 0; i < 8; ++i) {
        alone.emplace_back(DType::kBF16, c, Device::kCuda);
        queued.emplace_back(DType::kBF16, c, Device::kCuda);
    }
    for (int i = 0; i < 8; ++i) run(i, alone[i], true);
    for (int i = 0; i < 8; ++i) run(i, queued[i], false);
    card::synchronize(stream.queue());
    for (int i = 0; i < 8; ++i)
        EXPECT_TRUE(same_bits(on_host(alone[i].out).view(), on_host(queued[i].out).view())) << i;
}

TEST_F(MlaOnCard, AGraphServesLaterStepsOfFewerRows) {
    for (int heads : {16, 128}) {
        Stream stream(nullptr, Device::kCuda);
        Case c{.heads = heads, .sequences = {{1, 4000}, {1, 300}, {1, 70}, {1, 3333}}};
        const PagedKv pool = make_paged_kv(c.sequences, c.page);
        const Tensor q = random_tensor(DType::kBF16, 4, int64_t{heads} * kWidth, 9);
        const Tensor queries = on_card(q), kv = on_card(pool.memory);
        Output output(DType::kBF16, c, Device::kCuda);
        MlaStep step = make_step(c, 4, pool.memory.rows() / c.page);
        MlaArgs args = args_of(c, queries.view(), kv.view().data, output);
        args.step = &step;
        const auto queue = static_cast<cudaStream_t>(stream.queue());

        Case first = c;
        first.sequences = {{1, 10}};
        step.prepare(stream, sequences_of(first.sequences, pool), 4);
        mla_attention(stream, args);
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t ready = nullptr;
        CUDA_CHECK(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal));
        mla_attention(stream, args);
        CUDA_CHECK(cudaStreamEndCapture(queue, &graph));
        CUDA_CHECK(cudaGraphInstantiate(&ready, graph, 0));
        for (int rows = 1; rows <= 4; ++rows) {
            Case later = c;
            later.sequences.resize(rows);
            std::vector<MlaSequence> sequences = sequences_of(later.sequences, pool);
            step.prepare(stream, sequences, 4);
            CUDA_CHECK(cudaGraphLaunch(ready, queue));
            card::synchronize(stream.queue());
            Tensor part(DType::kBF16, rows, q.cols());
            std::memcpy(part.view().data, q.view().data, part.num_bytes());
            const Output want = run_on_card(later, pool, part);
            EXPECT_TRUE(same_bits(on_host(output.out).view().slice_rows(0, rows), want.out.view()))
                << rows << " rows, " << heads << " heads";
        }
        CUDA_CHECK(cudaGraphExecDestroy(ready));
        CUDA_CHECK(cudaGraphDestroy(graph));
    }
}

}  // namespace
}  // namespace aerie::kernels
