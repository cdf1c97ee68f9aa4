#include "kernels/qkv.h"

#include "kernels/cuda/test_support.h"
#include "kernels/norm.h"

namespace aerie::kernels {
namespace {

using namespace testing;

using CardQkv = OnCard;

TEST_F(CardQkv, OneKernelGivesTheBitsOfTheOperations) {
    constexpr int kRows = 37, kRope = 64, kLatent = 512, kPages = 3, kPageSize = 16;
    const RopeTable table({.dim = kRope}, 128, Device::kCuda);
    for (const auto& [query, normed] : {std::pair{1536, true}, {256, true}, {1024, false}}) {
        SCOPED_TRACE(::testing::Message() << "a query of " << query);
        const int64_t width = query + kLatent + kRope;
        const Tensor qkv = random_tensor(DType::kBF16, kRows, width, 3, 4.0f);
        const Tensor query_norm = on_card(random_tensor(DType::kF32, 1, query, 4));
        const Tensor latent_norm = on_card(random_tensor(DType::kF32, 1, kLatent, 5));
        std::vector<int32_t> positions;
        std::vector<int64_t> slots;
        for (int row = 0; row < kRows; ++row) {
            positions.push_back(row * 3 % 128);
            slots.push_back(row % 5 == 2 ? -1 : (row * 7) % (kPages * kPageSize));
        }
        CardArray<int32_t> card_positions(positions);
        CardArray<int64_t> card_slots(slots);
        const auto args = [&](Tensor& rows, Tensor& pool) {
            return QkvArgs{.qkv = rows.view(),
                           .query_width = query,
                           .query_norm = normed ? query_norm.data<float>() : nullptr,
                           .latent_norm = latent_norm.data<float>(),
                           .eps = 1e-6f,
                           .positions = card_positions.data(),
                           .pool = {.layer = pool.view().data, .page_size = kPageSize},
                           .slots = card_slots.data()};
        };
        Tensor got = on_card(qkv), want = on_card(qkv);
        const Tensor empty = poisoned(DType::kBF16, kPages * kPageSize, kLatent + kRope);
        Tensor got_pool = on_card(empty), want_pool = on_card(empty);
        finish_qkv(*stream_, table, args(got, got_pool));

        const View all = want.view(), latent = all.slice_cols(query, query + kLatent);
        const View q = all.slice_cols(0, query);
        if (normed) rms_norm(*stream_, q, query_norm.data<float>(), 1e-6f, q);
        rms_norm(*stream_, latent, latent_norm.data<float>(), 1e-6f, latent);
        rope(*stream_, table,
             {.x = all,
              .positions = card_positions.data(),
              .num_heads = 1,
              .head_stride = width,
              .offset = query + kLatent});
        kv_write(*stream_, args(want, want_pool).pool, all.slice_cols(query, width),
                 card_slots.data());
        wait();
        EXPECT_TRUE(same_bits(on_host(got).view(), on_host(want).view()));
        EXPECT_TRUE(same_bits(on_host(got_pool).view(), on_host(want_pool).view()));
        EXPECT_FALSE(same_bits(on_host(got).view(), qkv.view()));
    }
}

}  // namespace
}  // namespace aerie::kernels
