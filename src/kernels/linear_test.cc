#include "kernels/linear.h"

#include <gtest/gtest.h>

#include "kernels/test_support.h"

namespace aerie::kernels {
namespace {

using namespace testing;

// A checkpoint tensor with its scales, and what its elements are worth.
struct Checkpoint {
    int64_t rows, cols;
    std::vector<uint8_t> bytes;
    std::vector<float> scales;

    Checkpoint(int64_t num_rows, int64_t num_cols, uint32_t seed) : rows(num_rows), cols(num_cols) {
        std::mt19937 random(seed);
        for (int64_t i = 0; i < rows * cols; ++i) {
            uint8_t b = static_cast<uint8_t>(random());
            if ((b & 0x7f) == 0x7f) b = 0;
            bytes.push_back(b);
        }
        std::uniform_real_distribution<float> values(1e-3f, 3e-3f);
        for (int64_t i = 0; i < (rows + 127) / 128 * ((cols + 127) / 128); ++i)
            scales.push_back(values(random));
    }
    LinearSource source() const {
        return LinearSource::whole(bytes.data(), DType::kF8E4M3, rows, cols, scales.data());
    }
    float value(int64_t r, int64_t c, DType compute) const {
        const float v =
            f32_from_f8e4m3(bytes[r * cols + c]) * scales[r / 128 * ((cols + 127) / 128) + c / 128];
        return compute == DType::kBF16 ? f32_from_bf16(bf16_from_f32(v)) : v;
    }
};

Tensor product(ConstView x, const LinearWeight& w, DType y_type, ThreadPool* pool = nullptr) {
    Tensor y(y_type, x.rows, w.n());
    Stream stream(pool);
    linear(stream, {x, nullptr, &w, y.view()});
    return y;
}

TEST(Linear, AgreesWithDoublesOnSlices) {
    struct Case {
        int64_t m, row_begin, row_end, col_begin, col_end;
        bool transpose;
    };
    const Case cases[] = {{1, 0, 300, 0, 257, false},    {5, 64, 192, 64, 200, false},
                          {33, 100, 131, 1, 256, false}, {17, 3, 260, 10, 42, true},
                          {3, 0, 1, 0, 1, false},        {40, 7, 250, 2, 139, true}};
    const Checkpoint checkpoint(300, 257, 1);
    for_each_isa_and_type([&](DType type) {
        for (const Case& c : cases)
            for (bool keep : {false, true}) {
                LinearSource s = checkpoint.source();
                s.row_begin = c.row_begin, s.row_end = c.row_end;
                s.col_begin = c.col_begin, s.col_end = c.col_end;
                s.transpose = c.transpose;
                const LinearWeight w = pack_linear(s, type, keep);
                ASSERT_EQ(w.n(), s.n());
                ASSERT_EQ(w.k(), s.k());
                const Tensor x = random_tensor(type, c.m, w.k(), 7);
                const Tensor y = product(x.view(), w, DType::kF32);
                Tensor expected(DType::kF32, c.m, w.n());
                for (int64_t i = 0; i < c.m; ++i)
                    for (int64_t n = 0; n < w.n(); ++n) {
                        double sum = 0;
                        for (int64_t k = 0; k < w.k(); ++k)
                            sum += double{get(x.view(), i, k)} *
                                   checkpoint.value(c.row_begin + (c.transpose ? k : n),
                                                    c.col_begin + (c.transpose ? n : k), type);
                        put(expected.view(), i, n, static_cast<float>(sum));
                    }
                EXPECT_LT(relative_error(y.view(), expected.view()), 5e-6)
                    << c.m << " rows, slice " << c.row_begin << " " << c.col_begin << " " << keep;
            }
    });
}

TEST(Linear, KeptFp8GivesTheBitsOfExpanded) {
    const Checkpoint checkpoint(200, 300, 2);
    for_each_isa_and_type([&](DType type) {
        LinearSource s = checkpoint.source();
        s.row_begin = 9, s.col_begin = 62;
        const LinearWeight kept = pack_linear(s, type, true),
                           expanded = pack_linear(s, type, false);
        EXPECT_EQ(kept.storage(), DType::kF8E4M3);
        EXPECT_EQ(expanded.storage(), type);
        EXPECT_LT(kept.num_bytes(), expanded.num_bytes());
        for (int64_t m : {1, 20, 50}) {
            const Tensor x = random_tensor(type, m, s.k(), 3);
            EXPECT_TRUE(same_bits(product(x.view(), kept, DType::kF32).view(),
                                  product(x.view(), expanded, DType::kF32).view()));
        }
    });
}

// Every e4m3 value, through the identity, on every instruction set.
TEST(Linear, ExpandsEveryFp8ValueAsDefined) {
    std::vector<uint8_t> bytes(256);
    for (int i = 0; i < 256; ++i) bytes[i] = static_cast<uint8_t>(i);
    const float scale = 0.0117f;
    for_each_isa_and_type([&](DType type) {
        const LinearWeight w =
            pack_linear(LinearSource{bytes.data(), DType::kF8E4M3, 256, 1,
                                     std::vector{scale, scale}.data(), 0, 256, 0, 1, false},
                        type, true);
        Tensor x(type, 1, 1);
        put(x.view(), 0, 0, 1.0f);
        const Tensor y = product(x.view(), w, DType::kF32);
        for (int i = 0; i < 256; ++i) {
            const float value = f32_from_f8e4m3(bytes[i]) * scale;
            const float want = type == DType::kBF16 ? f32_from_bf16(bf16_from_f32(value)) : value;
            if (std::isnan(want))
                EXPECT_TRUE(std::isnan(get(y.view(), 0, i))) << i;
            else
                EXPECT_EQ(get(y.view(), 0, i), want) << i;
        }
    });
}

TEST(Linear, PairsOfKInTwoScaleBlocksAreExpanded) {
    const Checkpoint checkpoint(40, 300, 2);
    LinearSource s = checkpoint.source();
    s.col_begin = 1;
    EXPECT_EQ(pack_linear(s, DType::kBF16, true).storage(), DType::kBF16);
}

TEST(Linear, ARowDoesNotDependOnTheOthers) {
    ThreadPool one({.num_workers = 1}), three({.num_workers = 3});
    for_each_isa_and_type([&](DType type) {
        for (bool keep : {false, true}) {
            const Checkpoint checkpoint(256 + 24, 320, 4);
            const LinearWeight w = pack_linear(checkpoint.source(), type, keep);
            const Tensor x = random_tensor(type, 70, w.k(), 5);
            std::vector<Tensor> alone;
            for (int64_t i = 0; i < 70; ++i)
                alone.push_back(product(x.view().slice_rows(i, i + 1), w, type));
            for (int64_t m = 1; m <= 70; ++m) {
                ThreadPool* pool = m % 3 == 0 ? nullptr : m % 3 == 1 ? &one : &three;
                const Tensor y = product(x.view().slice_rows(70 - m, 70), w, type, pool);
                for (int64_t i = 0; i < m; ++i)
                    ASSERT_TRUE(same_bits(y.view().slice_rows(i, i + 1), alone[70 - m + i].view()))
                        << "row " << i << " of " << m;
            }
        }
    });
}

TEST(Linear, GroupedGathersAndWritesStridedColumns) {
    ThreadPool pool({.num_workers = 2});
    for_each_isa_and_type([&](DType type) {
        const Checkpoint a(48, 64, 1), b(32, 64, 2);
        const LinearSource both[] = {a.source(), b.source()};
        const LinearWeight wa = pack_linear(a.source(), type, false),
                           wb = pack_linear(b.source(), type, true),
                           stacked = pack_linear(both, type, true);
        const Tensor wide = random_tensor(type, 30, 100, 6);
        const ConstView x = wide.view().slice_cols(20, 84);
        const int32_t rows[] = {29, 3, 3, 17, 0};
        Tensor y(DType::kF32, 5, 100), z(DType::kF32, 5, 80);
        Stream stream(&pool);
        const LinearTask tasks[] = {{x, rows, &wa, y.view().slice_cols(0, 48)},
                                    {x, rows, &wb, y.view().slice_cols(48, 80)}};
        linear_grouped(stream, tasks);
        linear(stream, {x, rows, &stacked, z.view()});
        EXPECT_TRUE(same_bits(y.view().slice_cols(0, 80), z.view()));
        for (int64_t i = 0; i < 5; ++i) {
            EXPECT_EQ(get(y.view(), i, 80), 0.0f);
            const Tensor row = product(x.slice_rows(rows[i], rows[i] + 1), stacked, DType::kF32);
            EXPECT_TRUE(same_bits(row.view(), z.view().slice_rows(i, i + 1)));
        }
    });
}

TEST(Linear, NothingOfAPaddedOrNeighbouringValueLeaks) {
    for_each_isa_and_type([&](DType type) {
        Tensor wide(type, 4, 80);
        fill(wide.view(), std::nanf(""));
        const View x = wide.view().slice_cols(0, 37);
        fill_random(x, 8);
        const Tensor weights = random_tensor(DType::kF32, 19, 37, 9);
        const LinearWeight w = pack_linear(
            LinearSource::whole(weights.data<float>(), DType::kF32, 19, 37), type, false);
        const Tensor y = product(x.slice_rows(0, 3), w, DType::kF32);
        for (int64_t i = 0; i < 3; ++i)
            for (int64_t n = 0; n < 19; ++n) EXPECT_FALSE(std::isnan(get(y.view(), i, n)));
    });
}

}  // namespace
}  // namespace aerie::kernels
