#include <algorithm>
#include <cmath>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/test_support.h"
#include "kernels/routed.h"

namespace aerie::kernels {
namespace {

using namespace testing;

class CardCombine : public OnCard {
  protected:
    // Rows with top_k choices of so many lines, some of which are not here.
    struct Case {
        int64_t rows, hidden;
        int top_k;
        Tensor results, addend, x, weight;
        std::vector<RoutedLine> choices;

        Case(DType lines, int64_t num_rows, int64_t cols, int k, uint32_t seed)
            : rows(num_rows),
              hidden(cols),
              top_k(k),
              results(random_tensor(lines, num_rows * k + 1, cols, seed, 3.0f)),
              addend(random_tensor(DType::kBF16, num_rows, cols, seed + 1)),
              x(random_tensor(DType::kBF16, num_rows, cols, seed + 2, 5.0f)),
              weight(random_tensor(DType::kF32, 1, cols, seed + 3)) {
            std::mt19937 random(seed);
            for (int64_t row = 0; row < rows; ++row) {
                const int here = static_cast<int>(random() % static_cast<uint32_t>(k + 1));
                for (int j = 0; j < k; ++j) {
                    const auto line = static_cast<int32_t>(row * k + (j * 7 + 3) % k);
                    choices.push_back(
                        {j < here ? line : -1, 0.05f + 0.11f * static_cast<float>(j)});
                }
            }
        }
        // Σ weight · line of a row and column, as the card adds: in the choices' order.
        float routed(int64_t row, int64_t col) const {
            float sum = 0;
            for (int j = 0; j < top_k; ++j) {
                const RoutedLine c = choices[row * top_k + j];
                if (c.line < 0) continue;
                const float v = get(results.view(), c.line, col);
                sum = results.dtype() == DType::kBF16 ? std::fma(c.weight, v, sum)
                                                      : sum + c.weight * v;
            }
            return sum;
        }
    };
};

// The bits of the operations that it replaces: the sum rounded as the exchange would send it, added
// to the shared expert's, then add_partials_and_norm.
TEST_F(CardCombine, OneKernelGivesTheBitsOfTheOperations) {
    for (DType type : {DType::kF32, DType::kBF16})
        for (const auto& [rows, hidden, top_k] : {std::tuple<int, int, int>{1, 256, 4},
                                                  {7, 7168, 8},
                                                  {40, 384, 13},
                                                  {5, 16384, 3},
                                                  {150, 7168, 8},
                                                  {140, 9216, 2}}) {
            SCOPED_TRACE(::testing::Message() << name_of(type) << " " << rows << " x " << hidden);
            const Case c(type, rows, hidden, top_k, 17);
            Tensor want_rows(DType::kBF16, rows, hidden);
            for (int64_t i = 0; i < rows; ++i)
                for (int64_t j = 0; j < hidden; ++j) put(want_rows.view(), i, j, c.routed(i, j));
            Tensor sum(DType::kBF16, rows, hidden), want_x(DType::kBF16, rows, hidden);
            const ConstView parts[] = {c.addend.view(), want_rows.view()};
            sum_rows(cpu_, parts, sum.view());
            std::copy_n(c.x.data<BF16>(), rows * hidden, want_x.data<BF16>());
            const ConstView addend = sum.view();
            add_partials(cpu_, want_x.view(), {&addend, 1});

            const Tensor results = on_card(c.results), shared = on_card(c.addend);
            const Tensor weight = on_card(c.weight);
            CardArray<RoutedLine> choices(c.choices);
            const RoutedLines lines{results.view(), choices.data(), top_k};
            Tensor got_rows = on_card(poisoned(DType::kBF16, rows, hidden));
            Tensor got_sum = on_card(c.addend);
            combine_lines(*stream_, lines, {}, got_rows.view());
            combine_lines(*stream_, lines, got_sum.view(), got_sum.view());
            Tensor x = on_card(c.x), y = on_card(poisoned(DType::kBF16, rows, hidden));
            combine_and_norm(*stream_, {.lines = lines,
                                        .addend = shared.view(),
                                        .x = x.view(),
                                        .weight = weight.data<float>(),
                                        .eps = 1e-6f,
                                        .y = y.view()});
            Tensor apart_x = on_card(c.x), apart_y = on_card(poisoned(DType::kBF16, rows, hidden));
            const ConstView card_sum = got_sum.view();
            add_partials_and_norm(*stream_, apart_x.view(), {&card_sum, 1}, weight.data<float>(),
                                  1e-6f, apart_y.view());
            wait();
            EXPECT_TRUE(same_bits(on_host(got_rows).view(), want_rows.view()));
            EXPECT_TRUE(same_bits(on_host(got_sum).view(), sum.view()));
            EXPECT_TRUE(same_bits(on_host(x).view(), want_x.view()));
            EXPECT_TRUE(same_bits(on_host(apart_x).view(), want_x.view()));
            EXPECT_TRUE(same_bits(on_host(y).view(), on_host(apart_y).view()));
        }
}

}  // namespace
}  // namespace aerie::kernels
