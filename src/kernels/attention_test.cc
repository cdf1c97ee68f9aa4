#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/linear.h"
#include "kernels/test_support.h"

namespace aerie::kernels {
namespace {

using namespace testing;

// A paged pool with two sequences' KV in shuffled blocks; whatever is not written is NaN.
struct Pool {
    DType type;
    int page_size, width;
    Tensor memory;

    Pool(DType dtype, int num_blocks, int page, int row_width)
        : type(dtype),
          page_size(page),
          width(row_width),
          memory(dtype, num_blocks * page, row_width) {
        fill(memory.view(), std::nanf(""));
    }
    void write(const std::vector<int32_t>& blocks, int64_t local, ConstView row) {
        const int64_t slot = int64_t{blocks[local / page_size]} * page_size + local % page_size;
        std::memcpy(memory.view().row(slot), row.data, width * size_of(type));
    }
};

struct Shape {
    DType type = DType::kF32;
    int heads = 8;
    int latent = 64;
    int rope = 32;
    int page = 16;
    int context = 700;
    int width() const { return latent + rope; }
};

struct Sequence {
    Tensor kv, q;  // [context, width], [context, heads · width]
    std::vector<int32_t> blocks;
};

Sequence make_sequence(const Shape& s, uint32_t seed, int first_block) {
    Sequence r{random_tensor(s.type, s.context, s.width(), seed),
               random_tensor(s.type, s.context, s.heads * s.width(), seed + 1),
               {}};
    r.blocks.resize((s.context + s.page - 1) / s.page);
    std::iota(r.blocks.begin(), r.blocks.end(), first_block);
    std::shuffle(r.blocks.begin(), r.blocks.end(), std::mt19937(seed));
    return r;
}

struct Output {
    Tensor out, lse;
};

Output run(const Shape& s, const Pool& pool, ConstView q, std::span<const MlaSequence> sequences,
           ThreadPool* threads = nullptr, DType out_type = DType::kF32, int cp_rank = 0,
           int cp_size = 1) {
    Output r{Tensor(out_type, q.rows, s.heads * s.latent), Tensor(DType::kF32, q.rows, s.heads)};
    Stream stream(threads);
    mla_attention(stream, {.q = q,
                           .kv_layer = pool.memory.view().data,
                           .page_size = s.page,
                           .latent_dim = s.latent,
                           .rope_dim = s.rope,
                           .heads = s.heads,
                           .cp_rank = cp_rank,
                           .cp_size = cp_size,
                           .scale = 0.3f,
                           .sequences = sequences,
                           .out = r.out.view(),
                           .lse = r.lse.data<float>()});
    return r;
}

// Softmax in doubles over all positions up to the row's own.
Output reference(const Shape& s, const Sequence& q) {
    Output r{Tensor(DType::kF32, s.context, s.heads * s.latent),
             Tensor(DType::kF32, s.context, s.heads)};
    for (int i = 0; i < s.context; ++i)
        for (int h = 0; h < s.heads; ++h) {
            std::vector<double> p(i + 1);
            double highest = -1e300, sum = 0;
            for (int t = 0; t <= i; ++t) {
                for (int k = 0; k < s.width(); ++k)
                    p[t] += double{get(q.q.view(), i, h * s.width() + k)} * get(q.kv.view(), t, k);
                highest = std::max(highest, p[t] *= double{0.3f});
            }
            for (double& v : p) sum += v = std::exp(v - highest);
            for (int n = 0; n < s.latent; ++n) {
                double value = 0;
                for (int t = 0; t <= i; ++t) value += p[t] * get(q.kv.view(), t, n);
                put(r.out.view(), i, h * s.latent + n, static_cast<float>(value / sum));
            }
            put(r.lse.view(), i, h, static_cast<float>(highest + std::log(sum)));
        }
    return r;
}

Pool fill_pool(const Shape& s, std::span<const Sequence* const> sequences) {
    int blocks = 1;
    for (const Sequence* q : sequences) blocks += static_cast<int>(q->blocks.size());
    Pool pool(s.type, blocks, s.page, s.width());
    for (const Sequence* q : sequences)
        for (int i = 0; i < s.context; ++i)
            pool.write(q->blocks, i, q->kv.view().slice_rows(i, i + 1));
    return pool;
}

TEST(Attention, AgreesWithDoublesAndReadsNoUnwrittenSlot) {
    for_each_isa_and_type([&](DType type) {
        for (const auto& [heads, page, context] :
             {std::tuple{8, 16, 150}, {3, 5, 70}, {20, 64, 40}, {1, 128, 600}}) {
            const Shape s{.type = type, .heads = heads, .page = page, .context = context};
            const Sequence q = make_sequence(s, 11, 1);
            const Sequence* all[] = {&q};
            const Pool pool = fill_pool(s, all);
            const MlaSequence sequence{0, s.context, 0, q.blocks.data()};
            const Output got = run(s, pool, q.q.view(), {&sequence, 1});
            const Output want = reference(s, q);
            EXPECT_LT(relative_error(got.out.view(), want.out.view()), tolerance(type)) << heads;
            EXPECT_LT(relative_error(got.lse.view(), want.lse.view()), 1e-5) << heads;
        }
    });
}

// The result of position p is the same bits however the prompt is cut, beside whom, on how many
// threads.
TEST(Attention, ARowDependsOnItsOwnPastOnly) {
    ThreadPool one({.num_workers = 1}), three({.num_workers = 3});
    for_each_isa_and_type([&](DType type) {
        const Shape s{.type = type, .heads = 6, .context = 1100};
        const Sequence a = make_sequence(s, 21, 1), b = make_sequence(s, 31, 1 + 69);
        const Sequence* all[] = {&a, &b};
        const Pool pool = fill_pool(s, all);
        const MlaSequence whole{0, s.context, 0, a.blocks.data()};
        const Output want = run(s, pool, a.q.view(), {&whole, 1});

        const auto check = [&](int first, int rows, int partner_rows, int partner_position,
                               ThreadPool* threads) {
            Tensor q(type, rows + partner_rows, s.heads * s.width());
            for (int i = 0; i < rows + partner_rows; ++i)
                std::memcpy(q.view().row(i),
                            i < partner_rows ? b.q.view().row(partner_position + i)
                                             : a.q.view().row(first + i - partner_rows),
                            s.heads * s.width() * size_of(type));
            const MlaSequence both[] = {{0, partner_rows, partner_position, b.blocks.data()},
                                        {partner_rows, rows, first, a.blocks.data()}};
            const Output got =
                run(s, pool, q.view(), std::span(both).subspan(partner_rows == 0 ? 1 : 0), threads);
            ASSERT_TRUE(same_bits(got.out.view().slice_rows(partner_rows, partner_rows + rows),
                                  want.out.view().slice_rows(first, first + rows)))
                << rows << " rows from " << first << " beside " << partner_rows;
            ASSERT_TRUE(same_bits(got.lse.view().slice_rows(partner_rows, partner_rows + rows),
                                  want.lse.view().slice_rows(first, first + rows)));
        };
        for (int first : {0, 1, 127, 128, 500, 511, 512, 513, 1023, 1099})
            check(first, 1, 0, 0, nullptr);
        for (int first : {0, 250, 505, 1093}) check(first, 7, 1, 900, &one);
        for (int first : {3, 502, 1020}) check(first, 16, 3, 30, &three);
        check(0, s.context, 5, 600, &three);
        check(37, 1000, 0, 0, &one);
        check(1099, 1, 1, 1099, &three);
    });
}

TEST(Attention, PageSizeDoesNotChangeBits) {
    for_each_isa_and_type([&](DType type) {
        Output first;
        for (int page : {16, 1, 7, 64, 128}) {
            const Shape s{.type = type, .heads = 4, .page = page, .context = 300};
            const Sequence q = make_sequence(s, 41, 0);
            const Sequence* all[] = {&q};
            const Pool pool = fill_pool(s, all);
            const MlaSequence sequence{0, s.context, 0, q.blocks.data()};
            Output got = run(s, pool, q.q.view(), {&sequence, 1});
            if (page == 16)
                first = std::move(got);
            else
                EXPECT_TRUE(same_bits(got.out.view(), first.out.view())) << "page " << page;
        }
    });
}

TEST(Attention, ContextParallelPartsMergeToTheWhole) {
    for_each_isa_and_type([&](DType type) {
        const Shape s{.type = type, .heads = 8, .page = 16, .context = 200};
        const Sequence q = make_sequence(s, 51, 0);
        const Output want = reference(s, q);
        for (int cp : {2, 3}) {
            std::vector<Output> parts;
            for (int rank = 0; rank < cp; ++rank) {
                Pool pool(type, 32, s.page, s.width());
                std::vector<int32_t> blocks(16);
                std::iota(blocks.begin(), blocks.end(), 5);
                int local = 0;
                for (int i = 0; i < s.context; ++i)
                    if (i / s.page % cp == rank)
                        pool.write(blocks, local++, q.kv.view().slice_rows(i, i + 1));
                const MlaSequence sequence{0, s.context, 0, blocks.data()};
                parts.push_back(
                    run(s, pool, q.q.view(), {&sequence, 1}, nullptr, DType::kF32, rank, cp));
            }
            // The first page is rank 0's alone.
            EXPECT_EQ(get(parts[1].out.view(), 0, 0), 0.0f);
            EXPECT_TRUE(std::isinf(get(parts[1].lse.view(), 0, 0)));
            std::vector<ConstView> views;
            std::vector<const float*> lse;
            for (Output& p : parts) {
                views.push_back(p.out.view());
                lse.push_back(p.lse.data<float>());
            }
            Tensor merged(type, s.context, s.heads * s.latent);
            Stream stream;
            mla_merge(stream, {views, lse, s.heads, merged.view()});
            EXPECT_LT(relative_error(merged.view(), want.out.view()), tolerance(type)) << cp;
        }
    });
}

// Weights that make each head's keys and values, and queries for such keys.
struct Expansion {
    static constexpr int kNope = 96, kValue = 32;
    Shape s;
    Tensor k, v;  // [heads · kNope, latent], [heads · kValue, latent]
    std::vector<LinearWeight> packed_k, packed_v;
    Tensor q;  // [context, heads · (kNope + rope)]

    explicit Expansion(const Shape& shape)
        : s(shape),
          k(random_tensor(s.type, s.heads * kNope, s.latent, 61, 0.3f)),
          v(random_tensor(s.type, s.heads * kValue, s.latent, 62, 0.3f)),
          q(random_tensor(s.type, s.context, s.heads * (kNope + s.rope), 63)) {
        const auto pack = [&](const Tensor& all, int rows, int head) {
            auto source = LinearSource::whole(all.view().data, s.type, all.rows(), s.latent);
            source.row_begin = head * rows;
            source.row_end = source.row_begin + rows;
            return pack_linear(source, s.type, false);
        };
        for (int head = 0; head < s.heads; ++head) {
            packed_k.push_back(pack(k, kNope, head));
            packed_v.push_back(pack(v, kValue, head));
        }
    }

    Output run(const Pool& pool, ConstView queries, std::span<const MlaSequence> sequences,
               ThreadPool* threads = nullptr, int cp_rank = 0, int cp_size = 1) const {
        Output r{Tensor(DType::kF32, queries.rows, s.heads * kValue),
                 Tensor(DType::kF32, queries.rows, s.heads)};
        Stream stream(threads);
        mla_attention(stream, {.q = queries,
                               .kv_layer = pool.memory.view().data,
                               .page_size = s.page,
                               .latent_dim = s.latent,
                               .rope_dim = s.rope,
                               .heads = s.heads,
                               .cp_rank = cp_rank,
                               .cp_size = cp_size,
                               .scale = 0.3f,
                               .sequences = sequences,
                               .expand_k = packed_k.data(),
                               .expand_v = packed_v.data(),
                               .out = r.out.view(),
                               .lse = r.lse.data<float>()});
        return r;
    }
    // In doubles, rounded to the type where the kernel rounds.
    double made(const Tensor& weight, int64_t row, ConstView kv, int64_t token) const {
        double sum = 0;
        for (int i = 0; i < s.latent; ++i)
            sum += double{get(weight.view(), row, i)} * get(kv, token, i);
        const auto value = static_cast<float>(sum);
        return s.type == DType::kBF16 ? f32_from_bf16(bf16_from_f32(value)) : value;
    }
    Tensor reference(ConstView kv) const {
        Tensor out(DType::kF32, s.context, s.heads * kValue);
        const int key = kNope + s.rope;
        for (int h = 0; h < s.heads; ++h) {
            std::vector<double> keys, values;
            for (int t = 0; t < s.context; ++t) {
                for (int n = 0; n < kNope; ++n) keys.push_back(made(k, h * kNope + n, kv, t));
                for (int n = 0; n < s.rope; ++n) keys.push_back(get(kv, t, s.latent + n));
                for (int n = 0; n < kValue; ++n) values.push_back(made(v, h * kValue + n, kv, t));
            }
            for (int i = 0; i < s.context; ++i) {
                std::vector<double> p(i + 1), sums(kValue);
                double highest = -1e300, sum = 0;
                for (int t = 0; t <= i; ++t) {
                    for (int n = 0; n < key; ++n)
                        p[t] += get(q.view(), i, h * key + n) * keys[t * key + n];
                    highest = std::max(highest, p[t] *= double{0.3f});
                }
                for (int t = 0; t <= i; ++t) {
                    sum += p[t] = std::exp(p[t] - highest);
                    for (int n = 0; n < kValue; ++n) sums[n] += p[t] * values[t * kValue + n];
                }
                for (int n = 0; n < kValue; ++n)
                    put(out.view(), i, h * kValue + n, static_cast<float>(sums[n] / sum));
            }
        }
        return out;
    }
};

TEST(ExpandedAttention, AgreesWithDoublesAndReadsNoUnwrittenSlot) {
    for_each_isa_and_type([&](DType type) {
        for (const auto& [heads, page, context] :
             {std::tuple{3, 16, 150}, {2, 5, 70}, {1, 128, 600}, {2, 64, 17}}) {
            const Shape s{.type = type, .heads = heads, .page = page, .context = context};
            const Expansion e(s);
            const Sequence q = make_sequence(s, 71, 1);
            const Sequence* all[] = {&q};
            const Pool pool = fill_pool(s, all);
            const MlaSequence sequence{0, context, 0, q.blocks.data()};
            const Output got = e.run(pool, e.q.view(), {&sequence, 1});
            EXPECT_LT(relative_error(got.out.view(), e.reference(q.kv.view()).view()),
                      type == DType::kF32 ? 1e-5 : tolerance(type))
                << heads << " heads, page " << page;
        }
    });
}

// However the prompt is cut, beside whom, on how many threads, in as long blocks as there are.
TEST(ExpandedAttention, ARowDependsOnItsOwnPastOnly) {
    ThreadPool three({.num_workers = 3});
    for_each_isa_and_type([&](DType type) {
        const Shape s{.type = type, .heads = 2, .context = 1100};
        const Expansion e(s);
        const Sequence a = make_sequence(s, 81, 1), b = make_sequence(s, 91, 1 + 69);
        const Sequence* all[] = {&a, &b};
        const Pool pool = fill_pool(s, all);
        const MlaSequence whole{0, s.context, 0, a.blocks.data()};
        const Output want = e.run(pool, e.q.view(), {&whole, 1});
        for (const auto& [first, rows] :
             {std::pair{0, 1100}, {0, 600}, {511, 300}, {600, 500}, {1099, 1}}) {
            // The rows stand where they do in the whole; those before are the other sequence's.
            std::vector<MlaSequence> sequences;
            if (first > 0) sequences.push_back({0, first, 0, b.blocks.data()});
            sequences.push_back({first, rows, first, a.blocks.data()});
            for (ThreadPool* threads : {&three, static_cast<ThreadPool*>(nullptr)}) {
                const Output got = e.run(pool, e.q.view(), sequences, threads);
                EXPECT_TRUE(same_bits(got.out.view().slice_rows(first, first + rows),
                                      want.out.view().slice_rows(first, first + rows)))
                    << rows << " rows from " << first;
            }
        }
    });
}

TEST(ExpandedAttention, ContextParallelPartsMergeToTheWhole) {
    for_each_isa_and_type([&](DType type) {
        const Shape s{.type = type, .heads = 2, .page = 16, .context = 200};
        const Expansion e(s);
        const Sequence q = make_sequence(s, 51, 0);
        std::vector<Output> parts;
        for (int rank = 0; rank < 2; ++rank) {
            Pool pool(type, 32, s.page, s.width());
            std::vector<int32_t> blocks(16);
            std::iota(blocks.begin(), blocks.end(), 5);
            int local = 0;
            for (int i = 0; i < s.context; ++i)
                if (i / s.page % 2 == rank)
                    pool.write(blocks, local++, q.kv.view().slice_rows(i, i + 1));
            const MlaSequence sequence{0, s.context, 0, blocks.data()};
            parts.push_back(e.run(pool, e.q.view(), {&sequence, 1}, nullptr, rank, 2));
        }
        EXPECT_TRUE(std::isinf(get(parts[1].lse.view(), 0, 0)));
        const ConstView views[] = {parts[0].out.view(), parts[1].out.view()};
        const float* lse[] = {parts[0].lse.data<float>(), parts[1].lse.data<float>()};
        Tensor merged(DType::kF32, s.context, s.heads * Expansion::kValue);
        Stream stream;
        mla_merge(stream, {views, lse, s.heads, merged.view()});
        EXPECT_LT(relative_error(merged.view(), e.reference(q.kv.view()).view()),
                  type == DType::kF32 ? 1e-5 : tolerance(type));
    });
}

}  // namespace
}  // namespace aerie::kernels
