#include "kernels/rows.h"

#include <numeric>

#include "kernels/activation.h"
#include "kernels/cuda/test_support.h"
#include "kernels/kv_cache.h"
#include "kernels/norm.h"
#include "kernels/rope.h"

namespace aerie::kernels {
namespace {

using namespace testing;

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};
struct Size {
    int64_t rows, cols;
};
constexpr Size kSizes[] = {{0, 64},  {1, 1},     {3, 7},    {5, 64},
                           {2, 576}, {33, 1000}, {7, 7168}, {2, 16384}};

// Runs fn on the CPU and on the card, on x and an output of columns [before, before + cols) of a
// wider one, and compares: the bits, or within the tolerance of y's type.
class CardRows : public OnCard {
  protected:
    template <typename Fn>
    void compare(DType type, DType y_type, Size size, int64_t x_cols, int64_t before, bool exactly,
                 Fn fn) {
        SCOPED_TRACE(::testing::Message() << size.rows << " x " << size.cols << " " << name_of(type)
                                          << " to " << name_of(y_type) << " at " << before);
        const Tensor x = random_tensor(type, size.rows, x_cols + before, 1, 3.0f);
        Tensor want = poisoned(y_type, size.rows, size.cols + before);
        const Tensor card_x = on_card(x);
        Tensor card_y = on_card(want);
        const auto part = [&](auto view, int64_t cols) {
            return view.slice_cols(before, before + cols);
        };
        fn(cpu_, part(x.view(), x_cols), part(want.view(), size.cols));
        fn(*stream_, part(card_x.view(), x_cols), part(card_y.view(), size.cols));
        wait();
        const Tensor got = on_host(card_y);
        EXPECT_TRUE(same_nans(got.view(), want.view()));
        const ConstView a = part(std::as_const(got).view(), size.cols),
                        b = part(std::as_const(want).view(), size.cols);
        if (exactly)
            EXPECT_TRUE(same_bits(a, b));
        else
            EXPECT_LE(relative_error(a, b), tolerance(y_type));
    }
    template <typename Fn>
    void for_each(Fn fn) {
        for (Size size : kSizes)
            for (DType type : kTypes)
                for (DType y_type : kTypes)
                    for (int64_t before : {0, 3, 8}) fn(type, y_type, size, before);
    }
};

TEST_F(CardRows, CopyAndCastBits) {
    for_each([&](DType type, DType y_type, Size size, int64_t before) {
        compare(type, y_type, size, size.cols, before, true,
                [](Stream& stream, ConstView x, View y) { copy_rows(stream, x, y); });
    });
}

TEST_F(CardRows, GatherBits) {
    for_each([&](DType type, DType y_type, Size size, int64_t before) {
        std::vector<int32_t> ids(static_cast<size_t>(size.rows));
        for (int64_t i = 0; i < size.rows; ++i)
            ids[i] = static_cast<int32_t>((i * 7 + 3) % size.rows);
        CardArray<int32_t> card_ids(ids);
        compare(type, y_type, size, size.cols, before, true,
                [&](Stream& stream, ConstView x, View y) {
                    gather_rows(stream, x, stream.on_card() ? card_ids.data() : ids.data(), y);
                });
    });
}

TEST_F(CardRows, SumBits) {
    for_each([&](DType type, DType y_type, Size size, int64_t before) {
        const Tensor b = random_tensor(DType::kF32, size.rows, size.cols, 2),
                     c = random_tensor(DType::kBF16, size.rows, size.cols, 3), card_b = on_card(b),
                     card_c = on_card(c);
        compare(type, y_type, size, size.cols, before, true,
                [&](Stream& stream, ConstView x, View y) {
                    const bool card = stream.on_card();
                    const ConstView parts[] = {x, (card ? card_b : b).view(),
                                               (card ? card_c : c).view()};
                    sum_rows(stream, parts, y);
                });
    });
}

TEST_F(CardRows, SiluMul) {
    for_each([&](DType type, DType y_type, Size size, int64_t before) {
        compare(type, y_type, size, 2 * size.cols, before, false,
                [](Stream& stream, ConstView x, View y) { silu_mul(stream, x, y); });
    });
}

TEST_F(CardRows, RmsNorm) {
    for_each([&](DType type, DType y_type, Size size, int64_t before) {
        const Tensor weight = random_tensor(DType::kF32, 1, size.cols, 4), on = on_card(weight);
        compare(type, y_type, size, size.cols, before, false,
                [&](Stream& stream, ConstView x, View y) {
                    rms_norm(stream, x, (stream.on_card() ? on : weight).data<float>(), 1e-6f, y);
                });
    });
}

// The residual stream has the CPU's bits, and the fused call those of the two it stands for.
TEST_F(CardRows, ResidualAndNorm) {
    for (Size size : kSizes)
        for (DType type : kTypes)
            for (size_t num_parts : {0, 1, 3}) {
                SCOPED_TRACE(::testing::Message() << size.rows << " x " << size.cols << " "
                                                  << name_of(type) << ", " << num_parts);
                Tensor x = random_tensor(type, size.rows, size.cols, 1);
                Tensor fused = on_card(x), apart = on_card(x);
                const Tensor a = random_tensor(DType::kF32, size.rows, size.cols, 2),
                             b = random_tensor(type, size.rows, size.cols, 3),
                             c = random_tensor(DType::kBF16, size.rows, size.cols, 4),
                             weight = random_tensor(DType::kF32, 1, size.cols, 5);
                const Tensor card_a = on_card(a), card_b = on_card(b), card_c = on_card(c),
                             card_weight = on_card(weight);
                const ConstView parts[] = {a.view(), b.view(), c.view()},
                                card_parts[] = {card_a.view(), card_b.view(), card_c.view()};
                Tensor y = on_card(poisoned(type, size.rows, size.cols)),
                       z = on_card(poisoned(type, size.rows, size.cols));
                add_partials(cpu_, x.view(), {parts, num_parts});
                add_partials(*stream_, apart.view(), {card_parts, num_parts});
                rms_norm(*stream_, apart.view(), card_weight.data<float>(), 1e-6f, y.view());
                add_partials_and_norm(*stream_, fused.view(), {card_parts, num_parts},
                                      card_weight.data<float>(), 1e-6f, z.view());
                wait();
                EXPECT_TRUE(same_bits(on_host(apart).view(), x.view()));
                EXPECT_TRUE(same_bits(on_host(fused).view(), x.view()));
                EXPECT_TRUE(same_bits(on_host(y).view(), on_host(z).view()));
            }
}

TEST_F(CardRows, RopeBits) {
    const RopeParams params{.dim = 64, .yarn = true, .factor = 32.0, .original_max_position = 1024};
    const RopeTable table(params, 3000), card_table(params, 3000, Device::kCuda);
    for (int64_t rows : {0, 1, 9})
        for (DType type : kTypes)
            for (int heads : {1, 3, 128})
                for (int64_t before : {7, 8}) {
                    const int64_t head = 192;
                    Tensor x = random_tensor(type, rows, heads * head, 1), card_x = on_card(x);
                    Tensor y = poisoned(type, rows, heads * 80), card_y = on_card(y);
                    std::vector<int32_t> positions;
                    for (int64_t i = 0; i < rows; ++i)
                        positions.push_back(static_cast<int32_t>(i * 337));
                    CardArray<int32_t> card_positions(positions);
                    const RopeArgs args{x.view(), positions.data(), heads, head, 128},
                        card_args{card_x.view(), card_positions.data(), heads, head, 128};
                    rope_to(cpu_, table, args, y.view(), 80, before);
                    rope_to(*stream_, card_table, card_args, card_y.view(), 80, before);
                    rope(cpu_, table, args);
                    rope(*stream_, card_table, card_args);
                    wait();
                    EXPECT_TRUE(same_bits(on_host(card_x).view(), x.view()));
                    EXPECT_TRUE(same_nans(on_host(card_y).view(), y.view()));
                    for (int h = 0; h < heads; ++h)
                        EXPECT_TRUE(
                            same_bits(on_host(card_y).view().slice_cols(h * 80 + before,
                                                                        h * 80 + before + 64),
                                      y.view().slice_cols(h * 80 + before, h * 80 + before + 64)));
                }
}

TEST_F(CardRows, KvWriteSkipsOtherRanks) {
    for (int width : {576, 33}) {
        Tensor pool = poisoned(DType::kBF16, 4 * 8, width), card_pool = on_card(pool);
        const Tensor rows = random_tensor(DType::kBF16, 3, width + 8, 1), card_rows = on_card(rows);
        const std::vector<int64_t> slots{8, -1, 17};
        CardArray<int64_t> card_slots(slots);
        kv_write(cpu_, {pool.view().data, DType::kBF16, 8, width}, rows.view().slice_cols(0, width),
                 slots.data());
        kv_write(*stream_, {card_pool.view().data, DType::kBF16, 8, width},
                 card_rows.view().slice_cols(0, width), card_slots.data());
        wait();
        EXPECT_TRUE(same_bits(on_host(card_pool).view(), pool.view()));
    }
}

}  // namespace
}  // namespace aerie::kernels
