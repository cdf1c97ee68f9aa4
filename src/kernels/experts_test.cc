#include "kernels/experts.h"

#include <gtest/gtest.h>

#include "kernels/activation.h"
#include "kernels/test_support.h"

namespace aerie::kernels {
namespace {

using namespace testing;

constexpr int64_t kHidden = 96, kInner = 40;
constexpr int kExperts = 5;

LinearWeight random_weight(DType type, int64_t n, int64_t k, uint32_t seed) {
    const Tensor w = random_tensor(DType::kF32, n, k, seed, 0.3f);
    return pack_linear(LinearSource::whole(w.data<float>(), DType::kF32, n, k), type, false);
}
std::vector<ExpertWeights> random_experts(DType type) {
    std::vector<ExpertWeights> experts(kExperts);
    for (int e = 0; e < kExperts; ++e)
        experts[e] = {random_weight(type, 2 * kInner, kHidden, 10 + e),
                      random_weight(type, kHidden, kInner, 20 + e)};
    return experts;
}

// One row through one expert, by the single operations.
Tensor one_expert(ConstView x, const ExpertWeights& w) {
    Stream stream;
    Tensor gate_up(x.dtype, 1, 2 * kInner), product(x.dtype, 1, kInner), y(DType::kF32, 1, kHidden);
    linear(stream, {x, nullptr, &w.gate_up, gate_up.view()});
    silu_mul(stream, gate_up.view(), product.view());
    linear(stream, {product.view(), nullptr, &w.down, y.view()});
    return y;
}

TEST(Experts, AddsInAscendingExpertAndRoundsOnce) {
    ThreadPool pool({.num_workers = 2});
    for_each_isa_and_type([&](DType type) {
        const std::vector<ExpertWeights> experts = random_experts(type);
        const int64_t rows = 50;
        const Tensor x = random_tensor(type, rows, kHidden, 3);
        std::mt19937 random(4);
        std::vector<int32_t> offsets{0};
        std::vector<ExpertChoice> choices;
        for (int64_t r = 0; r < rows; ++r) {
            std::vector<int32_t> order{0, 1, 2, 3, 4};
            std::shuffle(order.begin(), order.end(), random);
            for (int64_t i = 0; i < r % 4; ++i)
                choices.push_back({order[i], 0.1f + 0.2f * static_cast<float>(i)});
            offsets.push_back(static_cast<int32_t>(choices.size()));
        }
        Tensor out(type, rows, kHidden);
        fill(out.view(), std::nanf(""));
        ExpertWorkspace workspace;
        Stream stream(&pool);
        expert_ffn(stream,
                   {x.view(), offsets.data(), choices.data(), experts, out.view(), &workspace});
        for (int64_t r = 0; r < rows; ++r) {
            std::vector<float> sum(kHidden);
            for (int32_t e = 0; e < kExperts; ++e)
                for (int32_t i = offsets[r]; i < offsets[r + 1]; ++i)
                    if (choices[i].expert == e) {
                        const Tensor y = one_expert(x.view().slice_rows(r, r + 1), experts[e]);
                        for (int64_t j = 0; j < kHidden; ++j)
                            sum[j] += choices[i].weight * y.data<float>()[j];
                    }
            for (int64_t j = 0; j < kHidden; ++j)
                ASSERT_EQ(get(out.view(), r, j),
                          type == DType::kBF16 ? f32_from_bf16(bf16_from_f32(sum[j])) : sum[j])
                    << "row " << r;
            // Alone: the same bits.
            Tensor alone(type, 1, kHidden);
            const int32_t own[] = {0, offsets[r + 1] - offsets[r]};
            expert_ffn(stream, {x.view().slice_rows(r, r + 1), own, choices.data() + offsets[r],
                                experts, alone.view(), &workspace});
            ASSERT_TRUE(same_bits(alone.view(), out.view().slice_rows(r, r + 1)));
        }
    });
}

TEST(Experts, DenseIsOneExpertOfWeightOne) {
    for_each_isa_and_type([&](DType type) {
        const std::vector<ExpertWeights> experts = random_experts(type);
        const Tensor x = random_tensor(type, 19, kHidden, 3);
        Tensor out(DType::kF32, 19, kHidden);
        ExpertWorkspace workspace;
        Stream stream;
        dense_ffn(stream, x.view(), experts[1], out.view(), workspace);
        for (int64_t r = 0; r < 19; ++r)
            EXPECT_TRUE(same_bits(out.view().slice_rows(r, r + 1),
                                  one_expert(x.view().slice_rows(r, r + 1), experts[1]).view()));
    });
}

}  // namespace
}  // namespace aerie::kernels
