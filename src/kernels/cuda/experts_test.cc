#include "kernels/experts.h"

#include <algorithm>
#include <numeric>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/test_support.h"

namespace aerie::kernels {
namespace {

using namespace testing;

// bfloat16 in between can round the other way after a sum in another order; over the largest value.
constexpr double kTolerance = 1e-2;

class CardExperts : public OnCard {
  protected:
    struct Experts {
        std::vector<Fp8Tensor> gate, up, down;
        std::vector<ExpertWeights> cpu;
        ExpertWeights stacked;

        Experts(int count, int64_t hidden, int64_t inner, bool keep) {
            std::vector<LinearSource> gate_ups, downs;
            for (int e = 0; e < count; ++e) {
                gate.emplace_back(inner, hidden, 3 * e);
                up.emplace_back(inner, hidden, 3 * e + 1);
                down.emplace_back(hidden, inner, 3 * e + 2);
            }
            for (int e = 0; e < count; ++e) {
                const LinearSource both[] = {gate[e].source(), up[e].source()};
                gate_ups.insert(gate_ups.end(), both, both + 2);
                downs.push_back(down[e].source());
                cpu.push_back({pack_linear(both, DType::kBF16, keep),
                               pack_linear(downs.back(), DType::kBF16, keep)});
            }
            stacked = {pack_linear(gate_ups, DType::kBF16, keep, Device::kCuda),
                       pack_linear(downs, DType::kBF16, keep, Device::kCuda)};
        }
    };
    struct Routes {
        std::vector<int32_t> ids;
        std::vector<float> weights;
        std::vector<int32_t> offsets{0};  // of those that are here
        std::vector<ExpertChoice> choices;
    };
    static Routes random_routes(int64_t rows, int top_k, int all, int first, int here,
                                uint32_t seed) {
        Routes r;
        std::mt19937 random(seed);
        std::vector<int32_t> order(static_cast<size_t>(all));
        std::iota(order.begin(), order.end(), 0);
        for (int64_t i = 0; i < rows; ++i) {
            std::shuffle(order.begin(), order.end(), random);
            for (int j = 0; j < top_k; ++j) {
                const float weight = 0.1f + 0.2f * static_cast<float>(j);
                const bool is_here = order[j] >= first && order[j] < first + here;
                r.ids.push_back(is_here || i % 2 == 0 ? order[j] : -1);
                r.weights.push_back(weight);
                if (is_here) r.choices.push_back({order[j] - first, weight});
            }
            r.offsets.push_back(static_cast<int32_t>(r.choices.size()));
        }
        return r;
    }
    Tensor routed(ConstView card_x, const Routes& routes, int top_k, int first, int here,
                  const Experts& experts, DType type, int64_t begin = 0) {
        CardArray<int32_t> ids({routes.ids.begin() + begin * top_k,
                                routes.ids.begin() + (begin + card_x.rows) * top_k});
        CardArray<float> weights({routes.weights.begin() + begin * top_k,
                                  routes.weights.begin() + (begin + card_x.rows) * top_k});
        Tensor out = on_card(poisoned(type, card_x.rows, card_x.cols));
        cuda::routed_ffn(*stream_, {.x = card_x,
                                    .ids = ids.data(),
                                    .weights = weights.data(),
                                    .top_k = top_k,
                                    .first_expert = first,
                                    .num_experts = here,
                                    .experts = &experts.stacked,
                                    .out = out.view()});
        wait();
        return on_host(out);
    }
};

TEST_F(CardExperts, RoutedAgreesWithTheCpuAndWithARowAlone) {
    const int64_t hidden = 256, inner = 128;
    for (bool keep : {false, true}) {
        const Experts experts(8, hidden, inner, keep);
        for (int64_t rows : {0, 1, 7, 100, 400})
            for (int first : {0, 4}) {
                const int top_k = 4;
                SCOPED_TRACE(::testing::Message() << rows << " rows from " << first << " " << keep);
                const Routes routes = random_routes(rows, top_k, 16, first, 8, 5);
                const Tensor x = random_tensor(DType::kBF16, rows, hidden, 3), card_x = on_card(x);
                for (DType type : {DType::kF32, DType::kBF16}) {
                    Tensor want(type, rows, hidden);
                    ExpertWorkspace workspace;
                    expert_ffn(cpu_, {x.view(), routes.offsets.data(), routes.choices.data(),
                                      experts.cpu, want.view(), &workspace});
                    const Tensor got =
                        routed(card_x.view(), routes, top_k, first, 8, experts, type);
                    EXPECT_LE(relative_error(got.view(), want.view()), kTolerance);
                    for (int64_t i = 0; i < rows; i += 13) {
                        const Tensor alone = routed(card_x.view().slice_rows(i, i + 1), routes,
                                                    top_k, first, 8, experts, type, i);
                        EXPECT_TRUE(same_bits(alone.view(), got.view().slice_rows(i, i + 1)))
                            << "row " << i;
                        if (routes.offsets[i] == routes.offsets[i + 1]) {
                            EXPECT_EQ(get(got.view(), i, 5), 0.0f) << "nobody's row " << i;
                        }
                    }
                }
            }
    }
}

TEST_F(CardExperts, AllOnOneExpert) {
    const Experts experts(3, 128, 128, true);
    Routes routes;
    for (int i = 0; i < 300; ++i) {
        routes.ids.push_back(1), routes.weights.push_back(0.5f);
        routes.choices.push_back({1, 0.5f}), routes.offsets.push_back(i + 1);
    }
    const Tensor x = random_tensor(DType::kBF16, 300, 128, 3), card_x = on_card(x);
    Tensor want(DType::kF32, 300, 128);
    ExpertWorkspace workspace;
    expert_ffn(cpu_, {x.view(), routes.offsets.data(), routes.choices.data(), experts.cpu,
                      want.view(), &workspace});
    const Tensor got = routed(card_x.view(), routes, 1, 0, 3, experts, DType::kF32);
    EXPECT_LE(relative_error(got.view(), want.view()), kTolerance);
}

TEST_F(CardExperts, DenseAgreesWithTheCpu) {
    const Experts experts(1, 512, 384, true);
    for (int64_t rows : {0, 1, 33, 200}) {
        const Tensor x = random_tensor(DType::kBF16, rows, 512, 3), card_x = on_card(x);
        Tensor want(DType::kBF16, rows, 512);
        Tensor card_out = on_card(poisoned(DType::kBF16, rows, 512));
        ExpertWorkspace workspace;
        dense_ffn(cpu_, x.view(), experts.cpu[0], want.view(), workspace);
        dense_ffn(*stream_, card_x.view(), experts.stacked, card_out.view(), workspace);
        wait();
        EXPECT_LE(relative_error(on_host(card_out).view(), want.view()), kTolerance);
    }
}

}  // namespace
}  // namespace aerie::kernels
