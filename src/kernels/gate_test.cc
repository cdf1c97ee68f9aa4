#include "kernels/gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/test_support.h"

namespace aerie::kernels {
namespace {

using namespace testing;

struct Routed {
    std::vector<int32_t> ids;
    std::vector<float> weights;
};

Routed run(GateArgs args) {
    Routed r{std::vector<int32_t>(args.logits.rows * args.top_k),
             std::vector<float>(args.logits.rows * args.top_k)};
    args.ids = r.ids.data();
    args.weights = r.weights.data();
    Stream stream;
    gate(stream, args);
    return r;
}

std::vector<int> order_of(const std::vector<double>& v) {  // descending, stable
    std::vector<int> order(v.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return v[a] > v[b]; });
    return order;
}

// The formulas in doubles, by sorting.
Routed reference(const GateArgs& a) {
    Routed r;
    const int n = static_cast<int>(a.logits.cols), size = n / a.num_groups;
    for (int64_t row = 0; row < a.logits.rows; ++row) {
        std::vector<double> s(n), choice(n), groups(a.num_groups);
        double sum = 0;
        for (int e = 0; e < n; ++e) sum += std::exp(get(a.logits, row, e));
        for (int e = 0; e < n; ++e) {
            const double x = get(a.logits, row, e);
            s[e] = a.scoring == Scoring::kSigmoid ? 1 / (1 + std::exp(-x)) : std::exp(x) / sum;
            choice[e] =
                s[e] + (a.method == TopkMethod::kNoauxTc && a.bias != nullptr ? a.bias[e] : 0);
        }
        if (a.method != TopkMethod::kGreedy) {
            for (int g = 0; g < a.num_groups; ++g) {
                std::vector<double> part(choice.begin() + g * size,
                                         choice.begin() + (g + 1) * size);
                std::sort(part.rbegin(), part.rend());
                groups[g] = a.method == TopkMethod::kNoauxTc ? part[0] + part[1] : part[0];
            }
            const std::vector<int> best = order_of(groups);
            for (int i = a.topk_group; i < a.num_groups; ++i)
                std::fill_n(choice.begin() + best[i] * size, size, -1e30);
        }
        const std::vector<int> best = order_of(choice);
        double total = 1e-20;
        for (int i = 0; i < a.top_k; ++i) total += s[best[i]];
        for (int i = 0; i < a.top_k; ++i) {
            r.ids.push_back(best[i]);
            r.weights.push_back(static_cast<float>(s[best[i]] / (a.norm_topk_prob ? total : 1) *
                                                   a.routed_scaling_factor));
        }
    }
    return r;
}

TEST(Gate, AgreesWithTheFormulas) {
    const Tensor bias = random_tensor(DType::kF32, 1, 384, 9, 0.5f);
    const GateArgs cases[] = {
        {.logits = {},
         .bias = bias.data<float>(),
         .num_groups = 4,
         .topk_group = 2,
         .top_k = 4,
         .routed_scaling_factor = 2.5f},
        {.logits = {}, .bias = bias.data<float>(), .num_groups = 1, .topk_group = 1, .top_k = 8},
        {.logits = {},
         .scoring = Scoring::kSoftmax,
         .method = TopkMethod::kGreedy,
         .top_k = 6,
         .norm_topk_prob = false,
         .routed_scaling_factor = 16.0f},
        {.logits = {},
         .bias = bias.data<float>(),
         .scoring = Scoring::kSoftmax,
         .method = TopkMethod::kGroupLimitedGreedy,
         .num_groups = 8,
         .topk_group = 3,
         .top_k = 6,
         .norm_topk_prob = false},
    };
    for (Isa i : available_isas()) {
        set_isa(i);
        for (GateArgs args : cases)
            for (int64_t experts : {32, 64, 384}) {
                const Tensor logits = random_tensor(DType::kF32, 40, experts, 3, 4.0f);
                args.logits = logits.view();
                const Routed got = run(args), want = reference(args);
                EXPECT_EQ(got.ids, want.ids) << name_of(i) << " " << experts;
                for (size_t j = 0; j < got.weights.size(); ++j)
                    EXPECT_NEAR(got.weights[j], want.weights[j], 2e-6f * (1 + want.weights[j]));
            }
    }
    set_isa(best_isa());
}

TEST(Gate, TheLowestIndexWinsTies) {
    Tensor logits(DType::kF32, 1, 16);  // all equal
    GateArgs args{.logits = logits.view(), .num_groups = 4, .topk_group = 2, .top_k = 5};
    EXPECT_EQ(run(args).ids, (std::vector<int32_t>{0, 1, 2, 3, 4}));
    logits.data<float>()[9] = 1.0f;  // group 2 leads, and group 0 wins the tie behind it
    EXPECT_EQ(run(args).ids, (std::vector<int32_t>{9, 0, 1, 2, 3}));
}

}  // namespace
}  // namespace aerie::kernels
