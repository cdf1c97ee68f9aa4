// The arithmetic of drawing a token that the CPU (sample/) and the card (cuda/sampling.cu) share bit
// for bit. Units that include it are compiled without contraction to fused multiply-adds.
#pragma once

#include <bit>
#include <cstdint>

#include "base/hash.h"

namespace aerie::kernels {

// 64 random bits of an id: element id + 1 of the splitmix64 stream that starts at `base`
// (sample/noise.h makes it of seed, choice and position).
constexpr uint64_t noise_bits(uint64_t base, int32_t id) {
    return mix64(base + (static_cast<uint64_t>(id) + 1) * 0x9e3779b97f4a7c15u);
}

// Uniform in (0, 1): (k + 1/2) / 2^52, which doubles hold exactly, so neither 0 nor 1.
constexpr double noise_uniform(uint64_t bits) {
    return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}

// A number that orders as the float does, -0 apart.
constexpr int32_t ordered(float x) {
    const auto bits = std::bit_cast<int32_t>(x);
    return bits ^ ((bits >> 31) & 0x7fffffff);
}

// What top_p adds up: exp(x) for x <= 0 within 3e-7 of the value, in steps of 2^-34, so that a double
// holds any sum of 2^18 of them exactly, whatever the order. 2^n · 2^f with f in [-0.5, 0.5]
// from the Taylor series; without a branch, so that a loop over a row vectorises.
constexpr float draw_weight(float x) {
    const float y = x * 1.44269504f;
    const float bounded = y > -127.0f ? y : -127.0f;
    const float rounded = (bounded + 0x1.8p23f) - 0x1.8p23f;
    const float f = (bounded - rounded) * 0.693147181f;
    const float series =
        1 + f * (1 + f * (0.5f + f * (1.f / 6 + f * (1.f / 24 + f * (1.f / 120 + f * (1.f / 720))))));
    const float power = std::bit_cast<float>((static_cast<int32_t>(rounded) + 127) << 23);
    return (series * power + 0x1.8p-11f) - 0x1.8p-11f;
}

}  // namespace aerie::kernels
