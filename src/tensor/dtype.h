// Element types, and the scalar conversions that define them: the vector code must give these bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace aerie {

enum class DType : uint8_t { kF32, kBF16, kF8E4M3, kI32, kI64, kU8 };

constexpr size_t size_of(DType dtype) {
    switch (dtype) {
        case DType::kI64:
            return 8;
        case DType::kF32:
        case DType::kI32:
            return 4;
        case DType::kBF16:
            return 2;
        case DType::kF8E4M3:
        case DType::kU8:
            return 1;
    }
    return 0;
}

constexpr const char* name_of(DType dtype) {
    switch (dtype) {
        case DType::kF32:
            return "float32";
        case DType::kBF16:
            return "bfloat16";
        case DType::kF8E4M3:
            return "float8_e4m3";
        case DType::kI32:
            return "int32";
        case DType::kI64:
            return "int64";
        case DType::kU8:
            return "uint8";
    }
    return "?";
}

// bfloat16 is held as its 16 bits: the upper half of the float32 of the same value.
using BF16 = uint16_t;

constexpr float f32_from_bf16(BF16 bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Nearest, ties to even; a NaN stays a NaN.
constexpr BF16 bf16_from_f32(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<BF16>((bits >> 16) | 0x40u);
    return static_cast<BF16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// OCP e4m3 (bias 7, no infinities, 0x7f and 0xff are NaN).
constexpr float f32_from_f8e4m3(uint8_t bits) {
    const uint32_t sign = uint32_t{bits} >> 7 << 31;
    const uint32_t magnitude = bits & 0x7fu;
    if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
    if (magnitude >= 8) return std::bit_cast<float>(sign | ((magnitude << 20) + (120u << 23)));
    const float subnormal = static_cast<float>(magnitude) * 0x1p-9f;
    return sign != 0 ? -subnormal : subnormal;
}

}  // namespace aerie
