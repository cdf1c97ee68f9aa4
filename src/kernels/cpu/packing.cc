#include "kernels/cpu/packing.h"

#include <algorithm>
#include <cstring>

#include "kernels/linear_parts.h"
#include "kernels/on_card.h"

namespace aerie::kernels {
namespace {

constexpr int64_t kScaleBlock = 128;

int64_t k_begin(const LinearSource& s) { return s.transpose ? s.row_begin : s.col_begin; }
int64_t first_run(const LinearSource& s) { return kScaleBlock - k_begin(s) % kScaleBlock; }

// Where element (n, k) of a source is in its tensor.
struct Place {
    int64_t row, col;
};
Place place_of(const LinearSource& s, int64_t n, int64_t k) {
    return s.transpose ? Place{s.row_begin + k, s.col_begin + n}
                       : Place{s.row_begin + n, s.col_begin + k};
}
float scale_at(const LinearSource& s, Place at) {
    if (s.scales == nullptr) return 1.0f;
    const int64_t blocks = (s.cols + kScaleBlock - 1) / kScaleBlock;
    return s.scales[at.row / kScaleBlock * blocks + at.col / kScaleBlock];
}

float value_at(const LinearSource& s, Place at) {
    const int64_t i = at.row * s.cols + at.col;
    switch (s.dtype) {
        case DType::kF8E4M3:
            return f32_from_f8e4m3(static_cast<const uint8_t*>(s.data)[i]);
        case DType::kBF16:
            return f32_from_bf16(static_cast<const BF16*>(s.data)[i]);
        default:
            return static_cast<const float*>(s.data)[i];
    }
}

// Position of (k, column of the panel) in a panel of the compute type.
int64_t packed_index(DType compute, int64_t k, int64_t n) {
    return compute == DType::kF32 ? k * kPanelCols + n : k / 2 * 2 * kPanelCols + n * 2 + k % 2;
}

// Copies column n of a panel as it is: T has the source's type, and that of the panel.
template <typename T>
void copy_column(const LinearSource& s, int64_t n, DType compute, int64_t slot, T* panel) {
    const Place first = place_of(s, n, 0);
    const T* from = static_cast<const T*>(s.data) + first.row * s.cols + first.col;
    const int64_t step = s.transpose ? s.cols : 1;
    for (int64_t k = 0; k < s.k(); ++k) panel[packed_index(compute, k, slot)] = from[k * step];
}

// The general way: value · scale, rounded once.
void convert_column(const LinearSource& s, int64_t n, DType compute, int64_t slot, void* panel) {
    for (int64_t k = 0; k < s.k(); ++k) {
        const Place at = place_of(s, n, k);
        const float value =
            s.scales == nullptr ? value_at(s, at) : value_at(s, at) * scale_at(s, at);
        const int64_t i = packed_index(compute, k, slot);
        if (compute == DType::kF32)
            static_cast<float*>(panel)[i] = value;
        else
            static_cast<BF16*>(panel)[i] = bf16_from_f32(value);
    }
}

bool can_keep_fp8(std::span<const LinearSource> sources) {
    for (const LinearSource& s : sources) {
        const int64_t run = first_run(s);
        if (s.dtype != DType::kF8E4M3 || run != first_run(sources[0]) ||
            (run % 2 != 0 && run < s.k()))
            return false;
    }
    return true;
}

void check_source(const LinearSource& s, int64_t k) {
    CHECK(s.dtype == DType::kF8E4M3 || s.dtype == DType::kBF16 || s.dtype == DType::kF32,
          "weights of type {}", name_of(s.dtype));
    CHECK(0 <= s.row_begin && s.row_begin < s.row_end && s.row_end <= s.rows && 0 <= s.col_begin &&
              s.col_begin < s.col_end && s.col_end <= s.cols,
          "slice [{}, {}) × [{}, {}) of [{}, {}]", s.row_begin, s.row_end, s.col_begin, s.col_end,
          s.rows, s.cols);
    CHECK(s.k() == k, "sources of K {} and {}", k, s.k());
}

}  // namespace

void LinearPacking::fill(std::span<const LinearSource> sources, DType compute, bool keep_fp8) {
    w.k_ = sources[0].k();
    for (const LinearSource& s : sources) w.n_ += s.n();
    const bool fp8 = can_keep_fp8(sources);  // then the columns can be moved as bytes
    w.compute_ = compute;
    w.storage_ = fp8 && keep_fp8 ? DType::kF8E4M3 : compute;
    w.first_run_ = first_run(sources[0]);
    w.data_ = Buffer(static_cast<size_t>(num_panels(w) * stored_bytes(w)));
    if (fp8) w.scales_ = Buffer(static_cast<size_t>(num_panels(w) * num_runs(w) * kPanelCols) * 4);

    Buffer bytes(fp8 && !keep_fp8 ? static_cast<size_t>(padded_k(w) * kPanelCols) : 0);
    size_t source = 0;
    int64_t below = 0;  // columns of the sources before this one
    for (int64_t p = 0; p < num_panels(w); ++p) {
        std::byte* panel = w.data_.as<std::byte>() + p * stored_bytes(w);
        for (int64_t n = p * kPanelCols; n < std::min(w.n_, (p + 1) * kPanelCols); ++n) {
            while (n - below >= sources[source].n()) below += sources[source++].n();
            const LinearSource& s = sources[source];
            const int64_t slot = n % kPanelCols;
            if (fp8) {
                copy_column(s, n - below, compute, slot,
                            keep_fp8 ? reinterpret_cast<uint8_t*>(panel) : bytes.as<uint8_t>());
                float* scales = w.scales_.as<float>() + p * num_runs(w) * kPanelCols + slot;
                for (int64_t r = 0; r < num_runs(w); ++r) {  // a run may lie in the padding alone
                    const int64_t k = r == 0 ? 0 : w.first_run_ + (r - 1) * kScaleBlock;
                    scales[r * kPanelCols] =
                        scale_at(s, place_of(s, n - below, std::min(k, w.k_ - 1)));
                }
            } else if (s.dtype == compute && s.scales == nullptr) {
                if (compute == DType::kF32)
                    copy_column(s, n - below, compute, slot, reinterpret_cast<float*>(panel));
                else
                    copy_column(s, n - below, compute, slot, reinterpret_cast<BF16*>(panel));
            } else {
                convert_column(s, n - below, compute, slot, panel);
            }
        }
        if (fp8 && !keep_fp8) {
            DequantPanel d = dequant(w, p, panel);
            d.packed = bytes.as<uint8_t>();
            (compute == DType::kF32 ? ops().dequant_f32 : ops().dequant_bf16)(d);
        }
    }
    if (w.storage_ != DType::kF8E4M3) w.scales_.reset();
}

LinearWeight pack_linear(std::span<const LinearSource> sources, DType compute, bool keep_fp8,
                         Device device) {
    CHECK(!sources.empty() && (compute == DType::kF32 || compute == DType::kBF16),
          "{} sources, compute type {}", sources.size(), name_of(compute));
    for (const LinearSource& s : sources) check_source(s, sources[0].k());
#ifdef AERIE_CUDA
    if (device == Device::kCuda) return cuda::pack_linear(sources, keep_fp8);
#endif
    CHECK(device == Device::kCpu, "this build has no CUDA");
    LinearWeight w;
    LinearPacking{w}.fill(sources, compute, keep_fp8);
    return w;
}

#ifndef AERIE_CUDA  // else cuda/packing.cc has it
Result<LinearWeight> pack_linear_parts(int64_t, size_t, bool, const LinearPart&) {
    CHECK(false, "this build has no CUDA");
}
#endif

}  // namespace aerie::kernels
