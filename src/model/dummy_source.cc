#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/hash.h"
#include "model/tensor_source.h"

namespace aerie::model {
namespace {

// Signs, three exponent bits and the mantissa of e4m3 are random, so that |value| <= 1.875.
constexpr uint64_t kFp8Mask = 0xbfbfbfbfbfbfbfbfu;

// Root mean square of those values.
float fp8_rms() {
    double sum = 0;
    for (int bits = 0; bits < 64; ++bits) {
        const double value = f32_from_f8e4m3(static_cast<uint8_t>(bits));
        sum += value * value;
    }
    return static_cast<float>(std::sqrt(sum / 64));
}

class DummySource : public TensorSource {
  public:
    DummySource(uint64_t seed, bool quantised) : seed_(seed), quantised_(quantised) {}

    Result<TensorBytes> load(const TensorSpec& spec, int64_t row_begin, int64_t row_end) override {
        TensorBytes bytes;
        bytes.dtype = dtype_of(spec);
        const auto width = static_cast<size_t>(spec.row_elements());
        const size_t row_bytes = width * size_of(bytes.dtype);
        bytes.owned = Buffer(static_cast<size_t>(spec.rows) * row_bytes);
        bytes.data = bytes.owned.data();
        const uint64_t tensor_seed = hash_bytes(spec.name.data(), spec.name.size(), seed_);
        for (int64_t row = row_begin; row < row_end; ++row) {
            void* to = bytes.owned.as<std::byte>() + static_cast<size_t>(row) * row_bytes;
            const uint64_t row_seed = mix64(tensor_seed + static_cast<uint64_t>(row));
            if (bytes.dtype == DType::kF8E4M3) {
                fill_fp8(row_seed, static_cast<uint8_t*>(to), width);
            } else if (bytes.dtype == DType::kBF16) {
                const float limit = std::sqrt(3.0f / static_cast<float>(width));
                fill_bf16(row_seed, limit, static_cast<BF16*>(to), width);
            } else {
                std::fill_n(static_cast<float*>(to), width, constant_of(spec));
            }
        }
        return bytes;
    }
    bool has(const std::string& name) const override {
        return quantised_ || !name.ends_with("_scale_inv");
    }
    std::string description() const override {
        return fmt::format("random numbers (load_format dummy, seed {})", seed_);
    }

  private:
    DType dtype_of(const TensorSpec& spec) const {
        if (spec.kind == TensorKind::kScale || spec.cols == 0) return DType::kF32;
        return quantised_ && spec.kind == TensorKind::kWeight ? DType::kF8E4M3 : DType::kBF16;
    }
    // Norms are 1, the gate's bias 0. A scale brings the weights of its tensor to a variance of
    // 1 / K; K is known to one block of 128, which is near enough.
    static float constant_of(const TensorSpec& spec) {
        static const float rms = fp8_rms();
        if (spec.kind == TensorKind::kScale)
            return 1.0f / (rms * std::sqrt(static_cast<float>(spec.cols * 128)));
        return spec.name.ends_with("bias") ? 0.0f : 1.0f;
    }
    static void fill_fp8(uint64_t seed, uint8_t* to, size_t n) {
        for (size_t i = 0; i < n; i += 8) {
            const uint64_t word = mix64(seed ^ i) & kFp8Mask;
            std::memcpy(to + i, &word, std::min<size_t>(8, n - i));
        }
    }
    static void fill_bf16(uint64_t seed, float limit, BF16* to, size_t n) {
        for (size_t i = 0; i < n; ++i) {
            const uint64_t word = mix64(seed ^ (i / 4));
            const auto part = static_cast<int16_t>(word >> (i % 4 * 16));
            to[i] = bf16_from_f32(static_cast<float>(part) * (limit / 32768.0f));
        }
    }

    uint64_t seed_;
    bool quantised_;
};

}  // namespace

std::unique_ptr<TensorSource> make_dummy_source(uint64_t seed, bool quantised) {
    return std::make_unique<DummySource>(seed, quantised);
}

}  // namespace aerie::model
