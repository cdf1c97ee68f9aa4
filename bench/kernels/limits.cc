#include "bench/kernels/limits.h"

#include <immintrin.h>

#include <algorithm>

#include "base/clock.h"
#include "kernels/isa.h"
#include "tensor/buffer.h"

namespace aerie::bench {

double triad_bandwidth(Stream& stream) {
    constexpr int64_t kFloats = 16 << 20;
    Buffer a(kFloats * 4), b(kFloats * 4), c(kFloats * 4);
    double best = 0;
    for (int repeat = 0; repeat < 5; ++repeat) {
        const TimePoint start = Clock::now();
        const int64_t parts = stream.num_threads() * 4, part = kFloats / parts;
        stream.parallel_for(parts, [&](int64_t p) {
            float* x = a.as<float>() + p * part;
            const float* y = b.as<float>() + p * part;
            const float* z = c.as<float>() + p * part;
            for (int64_t i = 0; i < part; ++i) x[i] = y[i] + 3.0f * z[i];
        });
        best = std::max(best, 3.0 * kFloats * 4 / seconds_since(start));
    }
    return best;
}

double read_bandwidth(Stream& stream, size_t num_bytes) {
    Buffer memory(num_bytes);
    for (size_t i = 0; i < num_bytes; i += 64) memory.as<char>()[i] = 1;
    double best = 0;
    volatile int64_t sink = 0;
    for (int repeat = 0; repeat < 7; ++repeat) {
        const TimePoint start = Clock::now();
        const int64_t parts = stream.num_threads();
        const int64_t part = static_cast<int64_t>(num_bytes) / parts / 8;
        stream.parallel_for(parts, [&](int64_t p) {
            const int64_t* x = memory.as<int64_t>() + p * part;
            int64_t s[8] = {};
            for (int64_t i = 0; i + 8 <= part; i += 8)
                for (int j = 0; j < 8; ++j) s[j] += x[i + j];
            if (s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7] == 42) sink = 1;
        });
        best = std::max(best, static_cast<double>(num_bytes) / seconds_since(start));
    }
    return best;
}

namespace {

[[gnu::target("amx-tile,amx-bf16")]] double tile_peak() {
    struct alignas(64) {
        uint8_t palette = 1, rest[15] = {};
        uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    __asm__ volatile("" ::"r"(&config) : "memory");
    _tile_loadconfig(&config);
    double best = 0;
    constexpr int kSteps = 100000;
    for (int repeat = 0; repeat < 5; ++repeat) {
        const TimePoint start = Clock::now();
        for (int i = 0; i < kSteps; ++i) {
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        best = std::max(best, 4.0 * kSteps * 16 * 16 * 32 * 2 / seconds_since(start));
    }
    _tile_release();
    return best;
}

}  // namespace

double amx_peak() { return kernels::isa_available(kernels::Isa::kAmx) ? tile_peak() : 0; }

}  // namespace aerie::bench
