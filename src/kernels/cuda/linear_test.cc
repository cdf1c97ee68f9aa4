#include "kernels/linear.h"

#include "kernels/cuda/test_support.h"

namespace aerie::kernels {
namespace {

using namespace testing;

// Sums of K products of magnitude one in another order, over the largest sum.
constexpr double kOrder = 1e-5;

class CardLinear : public OnCard {
  protected:
    Tensor product(ConstView card_x, const LinearWeight& w, DType y_type,
                   const int32_t* x_rows = nullptr, int64_t rows = -1) {
        Tensor y = on_card(poisoned(y_type, rows < 0 ? card_x.rows : rows, w.n()));
        linear(*stream_, {card_x, x_rows, &w, y.view()});
        wait();
        return on_host(y);
    }
    static LinearWeight pack(const LinearSource& s, bool keep, Device device) {
        return pack_linear(s, DType::kBF16, keep, device);
    }
};

TEST_F(CardLinear, AgreesWithTheCpu) {
    struct Case {
        int64_t n, k;
    };
    for (Case c : {Case{8, 16}, Case{256, 64}, Case{200, 144}, Case{1000, 1536}, Case{64, 7168},
                   Case{1536, 512}}) {
        const Fp8Tensor checkpoint(c.n, c.k, 1);
        for (bool keep : {false, true}) {
            const LinearWeight w = pack(checkpoint.source(), keep, Device::kCpu),
                               card_w = pack(checkpoint.source(), keep, Device::kCuda);
            EXPECT_EQ(card_w.storage(), keep ? DType::kF8E4M3 : DType::kBF16);
            for (int64_t m : {0, 1, 5, 8, 17, 64, 65, 200}) {
                SCOPED_TRACE(::testing::Message()
                             << "[" << m << ", " << c.k << "] to " << c.n << " " << keep);
                const Tensor x = random_tensor(DType::kBF16, m, c.k, 2), card_x = on_card(x);
                for (DType type : {DType::kF32, DType::kBF16}) {
                    Tensor want(type, m, c.n);
                    linear(cpu_, {x.view(), nullptr, &w, want.view()});
                    const Tensor got = product(card_x.view(), card_w, type);
                    EXPECT_LE(relative_error(got.view(), want.view()),
                              type == DType::kF32 ? kOrder : tolerance(type));
                }
            }
        }
    }
}

TEST_F(CardLinear, ARowsBitsDependOnNothingElse) {
    for (bool keep : {false, true})
        for (const auto& [n, k] : {std::pair<int64_t, int64_t>{200, 3072}, {2112, 1040}}) {
            const Fp8Tensor checkpoint(n, k, 1);
            const LinearWeight w = pack(checkpoint.source(), keep, Device::kCuda);
            const Tensor x = random_tensor(DType::kBF16, 300, k, 2), card_x = on_card(x);
            const Tensor all = product(card_x.view(), w, DType::kF32);
            for (int64_t m : {1, 2, 7, 9, 16, 31, 64, 65, 129})
                for (int64_t at : {int64_t{0}, 300 - m}) {
                    const Tensor some =
                        product(card_x.view().slice_rows(at, at + m), w, DType::kF32);
                    EXPECT_TRUE(same_bits(some.view(), all.view().slice_rows(at, at + m)))
                        << m << " rows from " << at << " " << keep;
                }
        }
}

TEST_F(CardLinear, KeptFp8GivesTheBitsOfExpanded) {
    const Fp8Tensor checkpoint(392, 1168, 3);
    const LinearWeight kept = pack(checkpoint.source(), true, Device::kCuda),
                       expanded = pack(checkpoint.source(), false, Device::kCuda);
    EXPECT_LT(kept.num_bytes(), expanded.num_bytes());
    for (int64_t m : {1, 20, 50, 100}) {
        const Tensor x = on_card(random_tensor(DType::kBF16, m, 1168, 3));
        EXPECT_TRUE(same_bits(product(x.view(), kept, DType::kF32).view(),
                              product(x.view(), expanded, DType::kF32).view()));
    }
}

// Slices, transposed ones, stacks and other types: the packed weight through the identity.
TEST_F(CardLinear, PacksWhatTheCpuPacks) {
    const Fp8Tensor a(300, 272, 1), b(128, 400, 2);
    const Tensor plain = random_tensor(DType::kF32, 70, 144, 5),
                 bf16 = random_tensor(DType::kBF16, 70, 160, 6);
    LinearSource slice = a.source(), aligned = a.source(), turned = a.source();
    slice.row_begin = 9, slice.row_end = 209, slice.col_begin = 62, slice.col_end = 206;
    aligned.row_begin = 128, aligned.col_begin = 128;
    turned.transpose = true, turned.row_begin = 100, turned.row_end = 244;
    turned.col_begin = 3;
    LinearSource half = LinearSource::whole(bf16.data<BF16>(), DType::kBF16, 70, 160);
    half.col_begin = 16;
    LinearSource top = b.source(), below = b.source();
    top.col_end = below.col_end = 384;
    below.row_end = 72;
    const std::vector<std::vector<LinearSource>> stacks = {
        {slice},
        {aligned},
        {turned},
        {half},
        {LinearSource::whole(plain.data<float>(), DType::kF32, 70, 144), half, slice},
        {top, below},
    };
    for (const auto& sources : stacks)
        for (bool keep : {false, true}) {
            const LinearWeight w = pack_linear(sources, DType::kBF16, keep),
                               card_w = pack_linear(sources, DType::kBF16, keep, Device::kCuda);
            Tensor x(DType::kBF16, w.k(), w.k()), want(DType::kBF16, w.k(), w.n());
            for (int64_t i = 0; i < w.k(); ++i) put(x.view(), i, i, 1.0f);
            linear(cpu_, {x.view(), nullptr, &w, want.view()});
            EXPECT_TRUE(
                same_bits(product(on_card(x).view(), card_w, DType::kBF16).view(), want.view()))
                << &sources - stacks.data() << " " << keep;
        }
    EXPECT_EQ(pack_linear(stacks[5], DType::kBF16, true, Device::kCuda).storage(), DType::kF8E4M3);
}

TEST_F(CardLinear, GathersAndKeepsWithinItsColumns) {
    const Fp8Tensor checkpoint(56, 64, 1);
    const LinearWeight w = pack(checkpoint.source(), true, Device::kCuda);
    Tensor wide = poisoned(DType::kBF16, 30, 104);
    fill_random(wide.view().slice_cols(16, 80), 4);
    const Tensor card_wide = on_card(wide);
    const ConstView x = card_wide.view().slice_cols(16, 80);
    const std::vector<int32_t> rows{29, 3, 3, 17, 0};
    CardArray<int32_t> card_rows(rows);
    for (int64_t before : {0, 3, 4}) {
        Tensor y = on_card(poisoned(DType::kBF16, 5, 70));
        linear(*stream_, {x, card_rows.data(), &w, y.view().slice_cols(before, before + 56)});
        wait();
        const Tensor got = on_host(y);
        for (int64_t i = 0; i < 5; ++i) {
            const Tensor row = product(x.slice_rows(rows[i], rows[i] + 1), w, DType::kBF16);
            EXPECT_TRUE(same_bits(
                std::as_const(got).view().slice_rows(i, i + 1).slice_cols(before, before + 56),
                row.view()));
            for (int64_t j = 0; j < 70; ++j)
                EXPECT_EQ(std::isnan(get(got.view(), i, j)), j < before || j >= before + 56);
        }
    }
}

TEST_F(CardLinear, GroupedIsEachHeadAlone) {
    for (int heads : {1, 5, 130})
        for (bool keep : {false, true})
            for (int64_t m : {0, 3, 70}) {
                const int64_t n = 128, k = 64;
                std::vector<LinearWeight> weights;
                for (int h = 0; h < heads; ++h)
                    weights.push_back(pack(Fp8Tensor(n, k, 10 + h).source(), keep, Device::kCuda));
                const Tensor x = on_card(random_tensor(DType::kBF16, m, heads * k, 2));
                Tensor y = on_card(poisoned(DType::kBF16, m, heads * n));
                std::vector<LinearTask> tasks;
                for (int h = 0; h < heads; ++h)
                    tasks.push_back({x.view().slice_cols(h * k, (h + 1) * k), nullptr, &weights[h],
                                     y.view().slice_cols(h * n, (h + 1) * n)});
                linear_grouped(*stream_, tasks);
                wait();
                const Tensor got = on_host(y);
                for (int h = 0; h < heads; ++h)
                    ASSERT_TRUE(same_bits(std::as_const(got).view().slice_cols(h * n, (h + 1) * n),
                                          product(tasks[h].x, weights[h], DType::kBF16).view()))
                        << "head " << h << " of " << heads;
            }
}

}  // namespace
}  // namespace aerie::kernels
