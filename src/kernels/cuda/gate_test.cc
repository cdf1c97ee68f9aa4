#include "kernels/gate.h"

#include "kernels/cuda/test_support.h"

namespace aerie::kernels {
namespace {

using namespace testing;

class CardGate : public OnCard {
  protected:
    // The same experts as on the CPU; weights within the rounding of sums in another order.
    void compare(GateArgs args) {
        SCOPED_TRACE(::testing::Message() << args.logits.rows << " rows, " << args.logits.cols
                                          << " experts, " << args.num_groups << " groups");
        const int64_t rows = args.logits.rows, cols = args.logits.cols;
        const size_t count = static_cast<size_t>(rows * args.top_k);
        std::vector<int32_t> ids(count, -1);
        std::vector<float> weights(count, std::nanf(""));
        Tensor logits(DType::kF32, rows, cols);
        copy_rows_of(args.logits, logits.view());
        const Tensor card_logits = on_card(logits);
        CardArray<int32_t> card_ids(ids);
        CardArray<float> card_weights(weights);
        CardArray<float> bias(args.bias == nullptr
                                  ? std::vector<float>{}
                                  : std::vector<float>(args.bias, args.bias + cols));
        args.ids = ids.data(), args.weights = weights.data();
        gate(cpu_, args);
        args.logits = card_logits.view();
        args.bias = args.bias == nullptr ? nullptr : bias.data();
        args.ids = card_ids.data(), args.weights = card_weights.data();
        gate(*stream_, args);
        wait();
        EXPECT_EQ(card_ids.values(), ids);
        const std::vector<float> got = card_weights.values();
        for (size_t i = 0; i < count; ++i)
            EXPECT_NEAR(got[i], weights[i], 1e-6f * (1 + weights[i]));
    }
    static void copy_rows_of(ConstView from, View to) {
        for (int64_t i = 0; i < from.rows; ++i)
            for (int64_t j = 0; j < from.cols; ++j) put(to, i, j, get(from, i, j));
    }
};

TEST_F(CardGate, ChoosesWhatTheCpuChooses) {
    const Tensor bias = random_tensor(DType::kF32, 1, kMaxExperts, 9, 0.5f);
    const GateArgs cases[] = {
        {.logits = {},
         .bias = bias.data<float>(),
         .num_groups = 8,
         .topk_group = 4,
         .top_k = 8,
         .routed_scaling_factor = 2.5f},
        {.logits = {}, .bias = bias.data<float>(), .num_groups = 1, .topk_group = 1, .top_k = 8},
        {.logits = {}, .num_groups = 4, .topk_group = 1, .top_k = 2},
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
    for (GateArgs args : cases)
        for (int64_t experts : {32, 64, 256, 1024})
            for (int64_t rows : {0, 1, 65}) {
                const Tensor logits = random_tensor(DType::kF32, rows, experts, 3, 4.0f);
                args.logits = logits.view();
                compare(args);
            }
}

TEST_F(CardGate, TheLowestIndexWinsTies) {
    // Few different logits: ties between experts and between groups everywhere.
    std::mt19937 random(5);
    for (int64_t experts : {16, 256}) {
        Tensor logits(DType::kF32, 50, experts);
        for (int64_t i = 0; i < 50; ++i)
            for (int64_t j = 0; j < experts; ++j)
                put(logits.view(), i, j, static_cast<float>(random() % 3) - 1.0f);
        for (TopkMethod method :
             {TopkMethod::kGreedy, TopkMethod::kGroupLimitedGreedy, TopkMethod::kNoauxTc})
            for (Scoring scoring : {Scoring::kSigmoid, Scoring::kSoftmax})
                compare({.logits = logits.view(),
                         .scoring = scoring,
                         .method = method,
                         .num_groups = 4,
                         .topk_group = 2,
                         .top_k = 7});
    }
}

}  // namespace
}  // namespace aerie::kernels
