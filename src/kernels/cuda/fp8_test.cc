#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "kernels/cuda/fp8_gemm.h"
#include "kernels/cuda/fp8_ops.h"
#include "kernels/cuda/fp8_tile.h"
#include "kernels/cuda/test_support.h"

namespace aerie::kernels {
namespace {

using namespace testing;
using namespace cuda;

using Fp8OnCard = OnCard;

uint8_t e4m3(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); }

struct HostRows {
    std::vector<uint8_t> values;
    std::vector<float> scales;  // [cols / 128, stride]
    int64_t stride;

    HostRows(const Buffer& memory, const Fp8Rows& rows)
        : values(rows.rows * rows.cols),
          scales(rows.cols / 128 * rows.scale_stride),
          stride(rows.scale_stride) {
        EXPECT_LE(reinterpret_cast<std::byte*>(rows.scales + scales.size()),
                  memory.as<std::byte>() + memory.size());
        card::copy_now(values.data(), rows.values, values.size());
        card::copy_now(scales.data(), rows.scales, scales.size() * sizeof(float));
    }
    float at(int64_t row, int64_t col, int64_t cols) const {
        return f32_from_f8e4m3(values[row * cols + col]) * scales[col / 128 * stride + row];
    }
};

struct Quantised {
    Buffer memory;
    Fp8Rows rows;
    Quantised(int64_t num_rows, int64_t cols)
        : memory(Fp8Rows::num_bytes(num_rows, cols), Device::kCuda),
          rows(Fp8Rows::at(memory.data(), num_rows, cols)) {}
};

TEST_F(Fp8OnCard, RowsAreQuantisedAsByPlainLoops) {
    for (const auto& [rows, cols] : {std::pair{1, 128}, {7, 384}, {65, 1024}, {300, 7168}}) {
        Tensor x = random_tensor(DType::kBF16, rows, cols, 3, 50.0f);
        for (int64_t j = 0; j < 128; ++j) put(x.view(), rows - 1, j, 0.0f);  // a group of zeros
        if (rows > 1)
            for (int64_t j = 0; j < 128; ++j) put(x.view(), 0, j, 1e-38f);  // hardly any
        const Tensor card_x = on_card(x);
        Quantised q(rows, cols);
        fp8_quantise(*stream_, card_x.view(), q.rows);
        wait();
        const HostRows got(q.memory, q.rows);
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t g = 0; g < cols / 128; ++g) {
                float largest = 0;
                for (int64_t j = 0; j < 128; ++j)
                    largest = std::max(largest, std::abs(get(x.view(), i, g * 128 + j)));
                largest = largest == 0 ? 448.0f : std::max(largest, 1e-30f);
                ASSERT_EQ(got.scales[g * got.stride + i], largest * (1.0f / 448.0f));
                for (int64_t j = 0; j < 128; ++j)
                    ASSERT_EQ(got.values[i * cols + g * 128 + j],
                              e4m3(get(x.view(), i, g * 128 + j) * (448.0f / largest)))
                        << i << ", " << g * 128 + j;
            }
    }
}

TEST_F(Fp8OnCard, SiluMulIsQuantised) {
    const int64_t rows = 37, cols = 384;
    const Tensor x = random_tensor(DType::kBF16, rows, 2 * cols, 4, 8.0f);
    const Tensor card_x = on_card(x);
    Quantised q(rows, cols);
    fp8_silu_mul_quantise(*stream_, card_x.view(), q.rows);
    wait();
    const HostRows got(q.memory, q.rows);
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; ++j) {
            const double gate = get(x.view(), i, j), up = get(x.view(), i, cols + j);
            const double want = gate / (1 + std::exp(-gate)) * up;
            const double smallest = got.scales[j / 128 * got.stride + i] / 512;
            ASSERT_NEAR(got.at(i, j, cols), want, std::abs(want) * 0.07 + smallest)
                << i << ", " << j;
        }
}

// FP8 weights as a checkpoint holds them.
struct Weights : Fp8Tensor {
    using Fp8Tensor::Fp8Tensor;

    LinearWeight packed(Device device) const { return slice(0, rows, device); }
    LinearWeight slice(int64_t begin, int64_t end, Device device) const {
        LinearSource part = source();
        part.row_begin = begin;
        part.row_end = end;
        return kernels::pack_linear(part, DType::kBF16, true, device);
    }
    float at(int64_t i, int64_t j) const {
        return f32_from_f8e4m3(bytes[i * cols + j]) *
               scales[i / 128 * ((cols + 127) / 128) + j / 128];
    }
};

// y[first_row + i] against the product of quantised row first_row + i with w's rows from
// first_weight.
void expect_product(const Tensor& y, const HostRows& x, const Weights& w, int64_t first_row,
                    int64_t num_rows, int64_t first_weight) {
    Tensor want(DType::kF32, num_rows, y.cols());
    for (int64_t i = 0; i < num_rows; ++i)
        for (int64_t n = 0; n < y.cols(); ++n) {
            double sum = 0;
            for (int64_t k = 0; k < w.cols; ++k)
                sum += double{x.at(first_row + i, k, w.cols)} * w.at(first_weight + n, k);
            put(want.view(), i, n, static_cast<float>(sum));
        }
    EXPECT_LT(relative_error(y.view().slice_rows(first_row, first_row + num_rows), want.view()),
              8e-3);
}

// Each gives the same bits, so that the number of rows does not matter.
TEST_F(Fp8OnCard, EachTileMultiplies) {
    for (const auto& [m, n, k] : {std::tuple{1, 256, 512},
                                  {16, 576, 128},
                                  {65, 2112, 256},
                                  {200, 128, 1024},
                                  {129, 24, 384}}) {
        const Weights w(n, k, 5);
        const LinearWeight packed = w.packed(Device::kCuda);
        const Tensor x = on_card(random_tensor(DType::kBF16, m, k, 6));
        Quantised q(m, k);
        fp8_quantise(*stream_, x.view(), q.rows);
        Tensor first;
        for (size_t tile = 0; tile < fp8_dense_tiles().size(); ++tile) {
            SCOPED_TRACE(fmt::format("{} x {} x {}, tile {}", m, n, k, tile));
            Tensor y(DType::kBF16, m + 1, n, Device::kCuda);
            fp8_gemm_with_tile(*stream_, static_cast<int>(tile), q.rows, packed, y.first_rows(m));
            wait();
            Tensor got = on_host(y);
            if (tile == 0) expect_product(got, HostRows(q.memory, q.rows), w, 0, m, 0);
            for (int64_t j = 0; j < n; ++j)
                ASSERT_EQ(get(got.view(), m, j), 0.0f) << "past the end";
            if (tile == 0)
                first = std::move(got);
            else
                EXPECT_TRUE(same_bits(got.view(), first.view()));
        }
        EXPECT_LT(fp8_dense_tile(m, n, k), static_cast<int>(fp8_dense_tiles().size()));
    }
}

TEST_F(Fp8OnCard, GroupsMultiplyByTheirOwnWeights) {
    const int64_t n = 256, k = 256;
    for (int num_groups : {3, 40})
        for (int tile_rows : {64, 128}) {
            const Weights w(num_groups * n, k, 7);
            const LinearWeight packed = w.packed(Device::kCuda);
            std::vector<int32_t> ends(Fp8Groups::padded_groups(num_groups)), begins(ends.size());
            int32_t end = 0;
            for (size_t g = 0; g < ends.size(); ++g) {
                begins[g] = (end + tile_rows - 1) / tile_rows * tile_rows;
                const int count = static_cast<int>(g) >= num_groups ? 0
                                  : g % 4 == 1                      ? 0
                                                                    : 7 + 61 * (g % 3);
                ends[g] = end = begins[g] + count;
            }
            const int64_t capacity = begins.back() + tile_rows;
            const Tensor x = on_card(random_tensor(DType::kBF16, capacity, k, 8));
            Quantised q(capacity, k);
            fp8_quantise(*stream_, x.view(), q.rows);
            CardArray<int32_t> card_ends(ends);
            Tensor y(DType::kBF16, capacity, n, Device::kCuda);
            fp8_gemm_grouped(*stream_, q.rows, packed, {card_ends.data(), num_groups, tile_rows},
                             y.view());
            wait();
            const Tensor got = on_host(y);
            const HostRows rows(q.memory, q.rows);
            for (int g = 0; g < num_groups; g += 1 + num_groups / 8) {
                SCOPED_TRACE(fmt::format("group {} of {}, tiles of {}", g, num_groups, tile_rows));
                if (ends[g] > begins[g])
                    expect_product(got, rows, w, begins[g], ends[g] - begins[g], g * n);
            }
        }
}

double norm_of_error(ConstView a, ConstView b) {
    double difference = 0, size = 1e-30;
    for (int64_t i = 0; i < a.rows; ++i)
        for (int64_t j = 0; j < a.cols; ++j) {
            difference += std::pow(double{get(a, i, j)} - get(b, i, j), 2);
            size += std::pow(double{get(b, i, j)}, 2);
        }
    return std::sqrt(difference / size);
}

// Against the CPU's, whose rows are not quantised.
TEST_F(Fp8OnCard, RoutedExpertsAreTheCpusButForQuantisedRows) {
    const int64_t hidden = 512, inner = 256;
    for (const auto& [rows, experts, top_k, first] : {std::tuple{1, 4, 2, 0},
                                                      {33, 8, 3, 2},
                                                      {300, 4, 2, 0},
                                                      {64, 40, 6, 5},
                                                      {9, 8, 8, 0},
                                                      {2100, 4, 2, 0}}) {
        SCOPED_TRACE(fmt::format("{} rows, {} experts from {}", rows, experts, first));
        const Weights up(experts * 2 * inner, hidden, 11), down(experts * hidden, inner, 12);
        const ExpertWeights stacked{up.packed(Device::kCuda), down.packed(Device::kCuda)};
        std::vector<ExpertWeights> own(experts);
        for (int e = 0; e < experts; ++e)
            own[e] = {up.slice(e * 2 * inner, (e + 1) * 2 * inner, Device::kCpu),
                      down.slice(e * hidden, (e + 1) * hidden, Device::kCpu)};
        std::mt19937 random(13);
        std::vector<int32_t> ids(rows * top_k), offsets{0};
        std::vector<float> weights(ids.size());
        std::vector<ExpertChoice> choices;
        std::vector<int32_t> all(experts + first + 3);
        for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
        for (int r = 0; r < rows; ++r) {
            std::shuffle(all.begin(), all.end(), random);
            for (int j = 0; j < top_k; ++j) {
                const bool ours = all[j] >= first && all[j] < first + experts;
                ids[r * top_k + j] = ours || r % 2 == 0 ? all[j] : -1;
                const float weight = weights[r * top_k + j] = 0.1f + 0.1f * static_cast<float>(j);
                if (ours) choices.push_back({all[j] - first, weight});
            }
            offsets.push_back(static_cast<int32_t>(choices.size()));
        }
        const Tensor x = random_tensor(DType::kBF16, rows, hidden, 14);
        Tensor want(DType::kF32, rows, hidden);
        ExpertWorkspace workspace;
        expert_ffn(cpu_, {x.view(), offsets.data(), choices.data(), own, want.view(), &workspace});

        const Tensor card_x = on_card(x);
        CardArray<int32_t> card_ids(ids);
        CardArray<float> card_weights(weights);
        for (DType type : {DType::kF32, DType::kBF16}) {
            Tensor out(type, rows, hidden, Device::kCuda);
            const RoutedArgs args{.x = card_x.view(),
                                  .ids = card_ids.data(),
                                  .weights = card_weights.data(),
                                  .top_k = top_k,
                                  .first_expert = first,
                                  .num_experts = experts,
                                  .experts = &stacked,
                                  .out = out.view()};
            ASSERT_TRUE(fp8_serves(args));
            for (int again = 0; again < 2; ++again)
                combine_lines(*stream_, fp8_routed_lines(*stream_, args), {}, out.view());
            wait();
            const Tensor got = on_host(out);
            EXPECT_LT(norm_of_error(got.view(), want.view()), 0.06);
            for (int r = 0; r < rows; ++r)
                if (offsets[r] == offsets[r + 1]) {
                    ASSERT_EQ(get(got.view(), r, 5), 0.0f);
                }
        }
    }
}

TEST_F(Fp8OnCard, LinearAndDenseFfnAreTheCpusButForQuantisedRows) {
    const int64_t hidden = 512, inner = 384;
    const Weights up(2 * inner, hidden, 21), down(hidden, inner, 22);
    const ExpertWeights of_card{up.packed(Device::kCuda), down.packed(Device::kCuda)};
    const ExpertWeights host{up.packed(Device::kCpu), down.packed(Device::kCpu)};
    for (int rows : {1, 50}) {
        const Tensor x = random_tensor(DType::kBF16, rows, hidden, 23);
        const Tensor card_x = on_card(x);
        Tensor want(DType::kF32, rows, hidden), product(DType::kF32, rows, 2 * inner);
        ExpertWorkspace workspace;
        kernels::dense_ffn(cpu_, x.view(), host, want.view(), workspace);
        kernels::linear(cpu_, {.x = x.view(), .w = &host.gate_up, .y = product.view()});
        Tensor out(DType::kBF16, rows, hidden, Device::kCuda);
        Tensor y(DType::kBF16, rows, 2 * inner, Device::kCuda);
        ASSERT_TRUE(fp8_serves(card_x.view(), of_card, out.view()));
        fp8_dense_ffn(*stream_, card_x.view(), of_card, out.view());
        const LinearTask task{.x = card_x.view(), .w = &of_card.gate_up, .y = y.view()};
        ASSERT_TRUE(fp8_serves(task));
        fp8_linear(*stream_, task);
        wait();
        EXPECT_LT(norm_of_error(on_host(out).view(), want.view()), 0.06);
        EXPECT_LT(norm_of_error(on_host(y).view(), product.view()), 0.04);
    }
}

}  // namespace
}  // namespace aerie::kernels
