#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace aerie {
namespace {

TEST(DType, Bfloat16RoundsToNearestEven) {
    struct Case {
        uint32_t f32;
        uint16_t bf16;
    };
    for (const Case& c : {Case{0x3f800000, 0x3f80},
                          {0x3f808000, 0x3f80},
                          {0x3f808001, 0x3f81},
                          {0x3f818000, 0x3f82},
                          {0xbf7fffff, 0xbf80},
                          {0x7f7fffff, 0x7f80},
                          {0x7f800000, 0x7f80},
                          {0xff800000, 0xff80},
                          {0x00000001, 0x0000},
                          {0x00018000, 0x0002}})
        EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(c.f32)), c.bf16) << std::hex << c.f32;
    EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(std::bit_cast<float>(0x7f800001u)))));
    for (uint32_t bits = 0; bits < 0x7f80; ++bits)
        EXPECT_EQ(bf16_from_f32(f32_from_bf16(static_cast<BF16>(bits))), bits);
}

TEST(DType, E4m3IsItsDefinition) {
    for (int b = 0; b < 256; ++b) {
        const int sign = b >> 7, exponent = b >> 3 & 15, mantissa = b & 7;
        const float value = f32_from_f8e4m3(static_cast<uint8_t>(b));
        if (exponent == 15 && mantissa == 7) {
            EXPECT_TRUE(std::isnan(value));
            continue;
        }
        const double magnitude = exponent == 0 ? std::ldexp(mantissa / 8.0, -6)
                                               : std::ldexp(1 + mantissa / 8.0, exponent - 7);
        EXPECT_EQ(value, sign ? -magnitude : magnitude) << b;
        EXPECT_EQ(std::signbit(value), sign != 0);
    }
}

TEST(Buffer, IsZeroAlignedAndMovable) {
    for (size_t size : {size_t{1}, size_t{1000}, size_t{3} << 20}) {
        Buffer a(size);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
        for (size_t i = 0; i < size; ++i) ASSERT_EQ(a.as<char>()[i], 0);
        a.as<char>()[size - 1] = 7;
        Buffer b = std::move(a);
        EXPECT_EQ(b.size(), size);
        EXPECT_EQ(b.as<char>()[size - 1], 7);
    }
    Buffer huge(size_t{1} << 40);  // never touched, so it costs nothing
    EXPECT_NE(huge.data(), nullptr);
    EXPECT_EQ(Buffer(0).data(), nullptr);
}

TEST(Buffer, ScratchGrowsAndStays) {
    Scratch scratch;
    void* first = scratch.reserve(100);
    EXPECT_EQ(scratch.reserve(50), first);
    std::memset(scratch.reserve(5000), 1, 5000);
}

TEST(View, SlicesKeepTheStride) {
    Tensor t(DType::kBF16, 4, 10);
    for (int i = 0; i < 40; ++i) t.data<BF16>()[i] = static_cast<BF16>(i);
    const View part = t.view().slice_rows(1, 3).slice_cols(4, 7);
    EXPECT_EQ(part.rows, 2);
    EXPECT_EQ(part.cols, 3);
    EXPECT_EQ(part.row_as<BF16>(1)[2], 26);
    EXPECT_FALSE(part.contiguous());
    const ConstView same = part;
    EXPECT_EQ(same.row(1), part.row(1));
}

}  // namespace
}  // namespace aerie
