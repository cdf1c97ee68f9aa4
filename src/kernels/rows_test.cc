#include "kernels/rows.h"

#include <gtest/gtest.h>

#include "kernels/activation.h"
#include "kernels/kv_cache.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "kernels/test_support.h"

namespace aerie::kernels {
namespace {

using namespace testing;

TEST(Norm, AgreesWithDoublesAndFusesExactly) {
    for_each_isa_and_type([&](DType type) {
        for (int64_t cols : {1, 15, 16, 64, 100, 257, 576}) {
            const Tensor x = random_tensor(type, 5, cols, 1, 3.0f),
                         a = random_tensor(DType::kF32, 5, cols, 2),
                         b = random_tensor(type, 5, cols, 3),
                         weight = random_tensor(DType::kF32, 1, cols, 4);
            Tensor y(type, 5, cols), want(DType::kF32, 5, cols);
            ThreadPool pool({.num_workers = 1});
            Stream stream(&pool);
            rms_norm(stream, x.view(), weight.data<float>(), 1e-6f, y.view());
            for (int64_t i = 0; i < 5; ++i) {
                double squares = 0;
                for (int64_t j = 0; j < cols; ++j) squares += std::pow(get(x.view(), i, j), 2);
                for (int64_t j = 0; j < cols; ++j)
                    put(want.view(), i, j,
                        static_cast<float>(get(x.view(), i, j) / std::sqrt(squares / cols + 1e-6) *
                                           weight.data<float>()[j]));
            }
            EXPECT_LT(relative_error(y.view(), want.view()), tolerance(type));

            Tensor apart(type, 5, cols), fused(type, 5, cols), normed(type, 5, cols);
            copy_rows(stream, x.view(), apart.view());
            copy_rows(stream, x.view(), fused.view());
            const ConstView partials[] = {a.view(), b.view()};
            add_partials(stream, apart.view(), partials);
            for (int64_t j = 0; j < cols; ++j) {
                const float sum = get(x.view(), 2, j) + get(a.view(), 2, j) + get(b.view(), 2, j);
                EXPECT_EQ(get(apart.view(), 2, j),
                          type == DType::kBF16 ? f32_from_bf16(bf16_from_f32(sum)) : sum);
            }
            rms_norm(stream, apart.view(), weight.data<float>(), 1e-6f, y.view());
            add_partials_and_norm(stream, fused.view(), partials, weight.data<float>(), 1e-6f,
                                  normed.view());
            EXPECT_TRUE(same_bits(apart.view(), fused.view()));
            EXPECT_TRUE(same_bits(y.view(), normed.view()));
        }
    });
}

TEST(Activation, AgreesWithDoublesFarFromZeroToo) {
    for_each_isa_and_type([&](DType type) {
        Tensor x = random_tensor(type, 9, 2 * 37, 1, 20.0f), y(type, 9, 37),
               want(DType::kF32, 9, 37);
        put(x.view(), 0, 0, -200.0f), put(x.view(), 0, 1, 200.0f), put(x.view(), 0, 2, 0.0f);
        Stream stream;
        silu_mul(stream, x.view(), y.view());
        for (int64_t i = 0; i < 9; ++i)
            for (int64_t j = 0; j < 37; ++j) {
                const double g = get(x.view(), i, j);
                put(want.view(), i, j,
                    static_cast<float>(g / (1 + std::exp(-g)) * get(x.view(), i, 37 + j)));
            }
        EXPECT_LT(relative_error(y.view(), want.view()), tolerance(type));
        EXPECT_EQ(get(y.view(), 0, 2), 0.0f);
    });
}

TEST(Rope, RotatesAdjacentPairsWithYarn) {
    // Frequencies of the demo's parameters, from the reference's formulas in doubles.
    const RopeParams params{.dim = 64,
                            .theta = 10000.0,
                            .yarn = true,
                            .factor = 32.0,
                            .original_max_position = 1024,
                            .beta_fast = 32,
                            .beta_slow = 1,
                            .mscale = 1.0,
                            .mscale_all_dim = 1.0};
    const RopeTable table(params, 5000);
    const auto frequency = [](int i) {
        const double inverse = std::pow(10000.0, -2.0 * i / 64);
        const auto correction = [](double r) {
            return 64 * std::log(1024 / (r * 2 * M_PI)) / (2 * std::log(10000.0));
        };
        const double low = std::floor(correction(32)), high = std::ceil(correction(1));
        const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
        return inverse / 32 * ramp + inverse * (1 - ramp);
    };
    for_each_isa_and_type([&](DType type) {
        const int64_t head = 64 + 10;
        const Tensor x = random_tensor(type, 4, 3 * head, 1);
        Tensor y = random_tensor(type, 4, 3 * head, 1), placed(type, 4, 3 * 100),
               want(DType::kF32, 4, 3 * head);
        const int32_t positions[] = {0, 1, 777, 4999};
        copy_rows(*std::make_unique<Stream>(), x.view(), want.view());
        for (int64_t i = 0; i < 4; ++i)
            for (int h = 0; h < 3; ++h)
                for (int p = 0; p < 32; ++p) {
                    const int64_t j = h * head + 10 + 2 * p;
                    const double angle =
                        static_cast<float>(positions[i]) * static_cast<float>(frequency(p));
                    const double a = get(x.view(), i, j), b = get(x.view(), i, j + 1);
                    put(want.view(), i, j,
                        static_cast<float>(a * std::cos(angle) - b * std::sin(angle)));
                    put(want.view(), i, j + 1,
                        static_cast<float>(a * std::sin(angle) + b * std::cos(angle)));
                }
        Stream stream;
        const RopeArgs args{y.view(), positions, 3, head, 10};
        rope_to(stream, table, args, placed.view(), 100, 36);
        rope(stream, table, args);
        // Angles of thousands of radians in fp32 are off by up to 2e-4.
        EXPECT_LT(relative_error(y.view(), want.view()), std::max(tolerance(type), 5e-4));
        for (int h = 0; h < 3; ++h)
            EXPECT_TRUE(same_bits(y.view().slice_cols(h * head + 10, (h + 1) * head),
                                  placed.view().slice_cols(h * 100 + 36, (h + 1) * 100)));
        EXPECT_TRUE(same_bits(y.view().slice_rows(0, 1), x.view().slice_rows(0, 1)))
            << "position 0";
    });
}

TEST(Rope, AttentionFactorAndPlainFrequencies) {
    const RopeTable scaled({.dim = 2, .yarn = true, .factor = 40, .mscale = 1, .mscale_all_dim = 0},
                           4);
    EXPECT_NEAR(scaled.cos_sin(0)[0], 0.1 * std::log(40) + 1, 1e-6);
    const RopeTable plain({.dim = 4, .theta = 100}, 4);
    EXPECT_NEAR(plain.cos_sin(3)[1], std::sin(3.0), 1e-6);
    EXPECT_NEAR(plain.cos_sin(3)[2], std::cos(0.3), 1e-6);
}

TEST(Rows, GatherScatterAndCastRoundOnce) {
    for_each_isa_and_type([&](DType type) {
        const Tensor table = random_tensor(DType::kF32, 20, 35, 1);
        const int32_t ids[] = {19, 0, 7, 7};
        Tensor out(type, 4, 35);
        Stream stream;
        gather_rows(stream, table.view(), ids, out.view());
        for (int64_t i = 0; i < 4; ++i)
            for (int64_t j = 0; j < 35; ++j) {
                const float v = get(table.view(), ids[i], j);
                EXPECT_EQ(get(out.view(), i, j),
                          type == DType::kBF16 ? f32_from_bf16(bf16_from_f32(v)) : v);
            }
        const int32_t places[] = {5, 2, 0, 1};
        Tensor spread(DType::kF32, 6, 35);
        scatter_rows(stream, out.view(), places, spread.view());
        EXPECT_EQ(get(spread.view(), 5, 34), get(out.view(), 0, 34));
        EXPECT_EQ(get(spread.view(), 3, 0), 0.0f);
    });
}

TEST(Rows, CastKeepsNanAndInfinityOnEveryIsa) {
    for_each_isa_and_type([&](DType type) {
        Tensor x(DType::kF32, 1, 17), y(type, 1, 17);
        put(x.view(), 0, 0, std::nanf("")), put(x.view(), 0, 16, INFINITY);
        put(x.view(), 0, 1, std::bit_cast<float>(0x7f800001u));
        put(x.view(), 0, 2, std::bit_cast<float>(0x3f808000u));  // a tie, to even
        Stream stream;
        copy_rows(stream, x.view(), y.view());
        EXPECT_TRUE(std::isnan(get(y.view(), 0, 0)) && std::isnan(get(y.view(), 0, 1)));
        EXPECT_TRUE(std::isinf(get(y.view(), 0, 16)));
        if (type == DType::kBF16) {
            EXPECT_EQ(get(y.view(), 0, 2), 1.0f);
        }
    });
}

TEST(Rows, AccumulatesPairsInOrder) {
    for_each_isa_and_type([&](DType type) {
        const Tensor x = random_tensor(DType::kF32, 6, 50, 1);
        const int32_t offsets[] = {0, 2, 2, 5};
        const WeightedRow pairs[] = {{0, 0.5f}, {5, 2.0f}, {1, 1.0f}, {2, -1.0f}, {3, 0.25f}};
        Tensor y = random_tensor(type, 3, 50, 2), z = random_tensor(type, 3, 50, 2);
        Stream stream;
        accumulate_rows(stream, {x.view(), offsets, pairs, y.view(), false});
        accumulate_rows(stream, {x.view(), offsets, pairs, z.view(), true});
        const Tensor before = random_tensor(type, 3, 50, 2);
        for (int64_t i = 0; i < 3; ++i)
            for (int64_t j = 0; j < 50; ++j) {
                float sum = get(before.view(), i, j), fresh = 0;
                for (int32_t p = offsets[i]; p < offsets[i + 1]; ++p) {
                    sum += pairs[p].weight * get(x.view(), pairs[p].row, j);
                    fresh += pairs[p].weight * get(x.view(), pairs[p].row, j);
                }
                const bool round = type == DType::kBF16;
                EXPECT_EQ(get(y.view(), i, j), round ? f32_from_bf16(bf16_from_f32(sum)) : sum);
                EXPECT_EQ(get(z.view(), i, j), round ? f32_from_bf16(bf16_from_f32(fresh)) : fresh);
            }
        const ConstView parts[] = {x.view().slice_rows(0, 3), before.view()};
        sum_rows(stream, parts, y.view());
        const float sum = get(x.view(), 1, 7) + get(before.view(), 1, 7);
        EXPECT_EQ(get(y.view(), 1, 7),
                  type == DType::kBF16 ? f32_from_bf16(bf16_from_f32(sum)) : sum);
    });
}

TEST(KvCache, WritesRowsAndSkipsThoseOfOtherRanks) {
    Tensor memory(DType::kBF16, 4 * 8, 96);
    const KvPool pool{memory.view().data, DType::kBF16, 8, 96};
    const Tensor rows = random_tensor(DType::kBF16, 3, 96, 1);
    const int64_t slots[] = {8, -1, 17};
    Stream stream;
    kv_write(stream, pool, rows.view(), slots);
    EXPECT_TRUE(same_bits(memory.view().slice_rows(8, 9), rows.view().slice_rows(0, 1)));
    EXPECT_TRUE(same_bits(memory.view().slice_rows(17, 18), rows.view().slice_rows(2, 3)));
    EXPECT_EQ(get(memory.view(), 31, 0), 0.0f) << "slot -1 was written";
}

}  // namespace
}  // namespace aerie::kernels
