#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <vector>

#include "kernels/cuda/kernels.h"
#include "kernels/linear_parts.h"
#include "tensor/cuda/check.h"

namespace aerie::kernels {
namespace {

constexpr int64_t kScaleBlock = 128;
constexpr int64_t kConvertBytes = 16 << 20;  // of the host, converted at a time

int64_t blocks_of(int64_t n) { return (n + kScaleBlock - 1) / kScaleBlock; }

float value_at(const LinearSource& s, int64_t row, int64_t col) {
    const int64_t i = row * s.cols + col;
    switch (s.dtype) {
        case DType::kF8E4M3:
            return f32_from_f8e4m3(static_cast<const uint8_t*>(s.data)[i]);
        case DType::kBF16:
            return f32_from_bf16(static_cast<const BF16*>(s.data)[i]);
        default:
            return static_cast<const float*>(s.data)[i];
    }
}

// Row n of a source: value · scale, rounded once. FP8 goes through a table of its 256 values.
void convert_row(const LinearSource& s, int64_t n, BF16* out) {
    static constexpr auto kFp8 = [] {
        std::array<float, 256> values{};
        for (int i = 0; i < 256; ++i) values[i] = f32_from_f8e4m3(static_cast<uint8_t>(i));
        return values;
    }();
    const int64_t k_begin = s.transpose ? s.row_begin : s.col_begin, num_k = s.k();
    for (int64_t k = 0, end; k < num_k; k = end) {  // one run within a scale block at a time
        end = std::min(num_k, ((k_begin + k) / kScaleBlock + 1) * kScaleBlock - k_begin);
        const int64_t row = s.transpose ? s.row_begin + k : s.row_begin + n;
        const int64_t col = s.transpose ? s.col_begin + n : s.col_begin + k;
        const float scale =
            s.scales == nullptr
                ? 1.0f
                : s.scales[row / kScaleBlock * blocks_of(s.cols) + col / kScaleBlock];
        if (s.dtype == DType::kF8E4M3 && !s.transpose) {
            const uint8_t* from = static_cast<const uint8_t*>(s.data) + row * s.cols + col;
            for (int64_t i = 0; i < end - k; ++i) out[k + i] = bf16_from_f32(kFp8[from[i]] * scale);
        } else {
            for (int64_t i = 0; i < end - k; ++i)
                out[k + i] = bf16_from_f32(
                    (s.transpose ? value_at(s, row + i, col) : value_at(s, row, col + i)) * scale);
        }
    }
}

// The slice as it is, from its tensor straight to the card.
void send_slice(const LinearSource& s, std::byte* to) {
    const size_t element = size_of(s.dtype), width = static_cast<size_t>(s.k()) * element;
    const auto* from = static_cast<const std::byte*>(s.data) +
                       static_cast<size_t>(s.row_begin * s.cols + s.col_begin) * element;
    if (s.k() == s.cols)
        card::copy_now(to, from, width * static_cast<size_t>(s.n()));
    else
        CUDA_CHECK(cudaMemcpy2D(to, width, from, static_cast<size_t>(s.cols) * element, width,
                                static_cast<size_t>(s.n()), cudaMemcpyDefault));
}

void send_converted(const LinearSource& s, std::byte* to) {
    const int64_t at_once = std::max<int64_t>(1, kConvertBytes / (2 * s.k()));
    std::vector<BF16> rows(static_cast<size_t>(std::min(at_once, s.n()) * s.k()));
    for (int64_t n = 0; n < s.n(); n += at_once) {
        const int64_t here = std::min(at_once, s.n() - n);
        for (int64_t i = 0; i < here; ++i) convert_row(s, n + i, rows.data() + i * s.k());
        card::copy_now(to + n * s.k() * 2, rows.data(), static_cast<size_t>(here * s.k()) * 2);
    }
}

void append_scales(const LinearSource& s, std::vector<float>& scales) {
    const int64_t rows = blocks_of(s.n()), cols = blocks_of(s.k());
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; ++j)
            scales.push_back(s.scales == nullptr
                                 ? 1.0f
                                 : s.scales[(s.row_begin / kScaleBlock + i) * blocks_of(s.cols) +
                                            s.col_begin / kScaleBlock + j]);
}

}  // namespace

// A weight that its sources are sent to, one below the other.
struct CardLinearPacking {
    // Whether a source that has `below` rows above it can stay FP8.
    static bool can_keep_fp8(const LinearSource& s, int64_t below) {
        return s.dtype == DType::kF8E4M3 && !s.transpose && s.row_begin % kScaleBlock == 0 &&
               s.col_begin % kScaleBlock == 0 && below % kScaleBlock == 0 && s.k() % 16 == 0;
    }

    CardLinearPacking(int64_t n, int64_t k, bool fp8) {
        w.n_ = n;
        w.k_ = k;
        w.compute_ = DType::kBF16;
        w.storage_ = fp8 ? DType::kF8E4M3 : DType::kBF16;
        w.data_ = Buffer(static_cast<size_t>(n * k) * size_of(w.storage_), Device::kCuda);
    }
    void add(const LinearSource& s) {
        const bool fp8 = w.storage_ == DType::kF8E4M3;
        std::byte* to =
            w.data_.as<std::byte>() + below * w.k_ * static_cast<int64_t>(size_of(w.storage_));
        if (fp8) append_scales(s, scales);
        if (s.dtype == w.storage_ && !s.transpose && (fp8 || s.scales == nullptr))
            send_slice(s, to);
        else
            send_converted(s, to);
        below += s.n();
    }
    LinearWeight finish() {
        if (!scales.empty()) {
            w.scales_ = Buffer(scales.size() * sizeof(float), Device::kCuda);
            card::copy_now(w.scales_.data(), scales.data(), w.scales_.size());
        }
        return std::move(w);
    }

    LinearWeight w;
    int64_t below = 0;  // rows so far
    std::vector<float> scales;
};

namespace cuda {

LinearWeight pack_linear(std::span<const LinearSource> sources, bool keep_fp8) {
    int64_t n = 0;
    for (const LinearSource& s : sources) {
        keep_fp8 = keep_fp8 && CardLinearPacking::can_keep_fp8(s, n);
        n += s.n();
    }
    CardLinearPacking packing(n, sources[0].k(), keep_fp8);
    for (const LinearSource& s : sources) packing.add(s);
    return packing.finish();
}

}  // namespace cuda

Result<LinearWeight> pack_linear_parts(int64_t n, size_t num_parts, bool keep_fp8,
                                       const LinearPart& part) {
    std::optional<CardLinearPacking> packing;
    for (size_t i = 0; i < num_parts; ++i) {
        Result<LinearSource> source = part(i);
        if (!source) return source.error();
        if (!packing) {
            keep_fp8 = keep_fp8 && CardLinearPacking::can_keep_fp8(*source, 0);
            packing.emplace(n, source->k(), keep_fp8);
        }
        if (keep_fp8 && !CardLinearPacking::can_keep_fp8(*source, packing->below))
            return error(
                "part {} of {} of a stacked weight is {} behind {} rows, expected "
                "float8_e4m3, as the first is, behind a multiple of 128 rows",
                i, num_parts, name_of(source->dtype), packing->below);
        CHECK(packing->below + source->n() <= n && source->k() == packing->w.k(),
              "part {} [{}, {}] of [{}, {}]", i, source->n(), source->k(), n, packing->w.k());
        packing->add(*source);
    }
    CHECK(packing && packing->below == n, "{} parts are not {} rows", num_parts, n);
    return packing->finish();
}

}  // namespace aerie::kernels
