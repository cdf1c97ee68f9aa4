// How a LinearWeight lies in memory, for the files that pack and read it. Panels of 16 columns
// (ops.h) one after another; K is padded with zeros to a multiple of kPackedK, N to a whole panel.
// FP8 has the same order in bytes, and for each panel the scales of its columns in each run of K:
// [runs][16].
#pragma once

#include "kernels/cpu/ops.h"
#include "kernels/linear.h"

namespace aerie::kernels {

inline constexpr int64_t kPackedK = 32;  // an AMX tile's depth in bfloat16

struct LinearPacking {
    LinearWeight& w;

    static int64_t padded_k(const LinearWeight& w) {
        return (w.k_ + kPackedK - 1) / kPackedK * kPackedK;
    }
    static int64_t num_panels(const LinearWeight& w) {
        return (w.n_ + kPanelCols - 1) / kPanelCols;
    }
    static int64_t num_runs(const LinearWeight& w) {
        const int64_t k = padded_k(w);
        return k <= w.first_run_ ? 1 : 1 + (k - w.first_run_ + 127) / 128;
    }
    // Bytes of one panel as stored, and as the inner loops want it.
    static int64_t stored_bytes(const LinearWeight& w) {
        return padded_k(w) * kPanelCols * static_cast<int64_t>(size_of(w.storage_));
    }
    static int64_t compute_bytes(const LinearWeight& w) {
        return padded_k(w) * kPanelCols * static_cast<int64_t>(size_of(w.compute_));
    }
    static const std::byte* panel(const LinearWeight& w, int64_t p) {
        return w.data_.as<std::byte>() + p * stored_bytes(w);
    }
    static DequantPanel dequant(const LinearWeight& w, int64_t p, void* out) {
        return {reinterpret_cast<const uint8_t*>(panel(w, p)),
                w.scales_.as<float>() + p * num_runs(w) * kPanelCols, w.first_run_, padded_k(w),
                out};
    }

    void fill(std::span<const LinearSource> sources, DType compute, bool keep_fp8);
};

}  // namespace aerie::kernels
