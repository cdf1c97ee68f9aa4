// linear: y = x · Wᵀ, with weights packed once at load.
//
// Arithmetic. In bfloat16 each weight is bf16(value · scale), rounded once, whether that is done
// when packing or from FP8 in each call: FP8 storage is a choice of memory and bandwidth, never of
// result. In float32 each weight is f32(value · scale). Products are added in fp32 in an order that
// depends on K and the instruction set alone: a row's result does not depend on the other rows, on
// their number or on the threads. y is rounded once, when it is bfloat16.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/stream.h"
#include "tensor/view.h"

namespace aerie::kernels {

// A part of a checkpoint tensor [rows, cols] in row-major order.
struct LinearSource {
    const void* data = nullptr;
    DType dtype = DType::kBF16;  // kF8E4M3, kBF16 or kF32
    int64_t rows = 0;            // of the whole tensor
    int64_t cols = 0;
    const float* scales = nullptr;  // [ceil(rows/128), ceil(cols/128)] of the whole tensor, or null
    int64_t row_begin = 0;          // the slice to take; need not be aligned to the scale blocks
    int64_t row_end = 0;
    int64_t col_begin = 0;
    int64_t col_end = 0;
    bool transpose = false;  // false: N = rows of the slice, K = cols; true: N = cols, K = rows

    // The whole tensor.
    static LinearSource whole(const void* data, DType dtype, int64_t rows, int64_t cols,
                              const float* scales = nullptr) {
        return {data, dtype, rows, cols, scales, 0, rows, 0, cols, false};
    }
    int64_t n() const { return transpose ? col_end - col_begin : row_end - row_begin; }
    int64_t k() const { return transpose ? row_end - row_begin : col_end - col_begin; }
};

// A packed weight [N, K]. Move-only; immutable and shared by any number of threads once packed.
class LinearWeight {
  public:
    LinearWeight() = default;

    int64_t n() const { return n_; }
    int64_t k() const { return k_; }
    DType compute() const { return compute_; }  // type of x
    DType storage() const { return storage_; }  // compute, or kF8E4M3
    size_t num_bytes() const { return data_.size() + scales_.size(); }
    bool empty() const { return n_ == 0; }
    Device device() const { return data_.device(); }
    // On the card: [N, K] of storage's type, row-major, and, of FP8, [ceil(N/128), ceil(K/128)]
    // scales. On the CPU the layout is that of the instruction sets.
    const std::byte* data() const { return data_.as<std::byte>(); }
    const float* scales() const { return scales_.as<float>(); }

  private:
    friend struct LinearPacking;      // cpu/packing.h: the layout
    friend struct CardLinearPacking;  // cuda/packing.cc
    int64_t n_ = 0;
    int64_t k_ = 0;
    DType compute_ = DType::kBF16;
    DType storage_ = DType::kBF16;
    int64_t first_run_ = 0;  // FP8: length in K of the first run of one scale
    Buffer data_;
    Buffer scales_;
};

// Keep FP8 or expand it? Expanding an FP8 weight in each call costs a core about 5 ns for 32
// weights, reading 32 expanded ones 2.5 to 4 ns where the last cache holds the model and more where
// it does not. On 2 cores with AMX the demo (42 MB of FP8) is served about 1.5 to 2 times faster
// expanded at up to 16 rows, and alike at 512. So: expand what the machine's last cache can hold
// twice over, keep FP8 where memory is what is short.

// Packs the sources one below the other along N (gate above up, q_a above kv_a). All have one K, or
// it is a CHECK. keep_fp8 keeps FP8 in memory where every source is FP8 and no pair of K indices
// (2i, 2i+1) lies in two scale blocks (on the card: and every source begins, in itself and in the
// stack, where a scale block does and is not transposed), and is ignored otherwise. On the card
// compute is bfloat16. Any thread.
LinearWeight pack_linear(std::span<const LinearSource> sources, DType compute, bool keep_fp8,
                         Device device = Device::kCpu);
inline LinearWeight pack_linear(const LinearSource& source, DType compute, bool keep_fp8,
                                Device device = Device::kCpu) {
    return pack_linear(std::span(&source, 1), compute, keep_fp8, device);
}

struct LinearTask {
    ConstView x;                      // [M, K] compute type
    const int32_t* x_rows = nullptr;  // [y.rows] row of x for each row of y; null: the same row
    const LinearWeight* w = nullptr;  // [N, K]
    View y;  // [M, N] compute type or float32; overlaps nothing that is read
};

void linear(Stream& stream, const LinearTask& task);
// Several at once: experts, or heads with their own weights. The tasks are independent; their y do
// not overlap (but may be columns of one tensor).
void linear_grouped(Stream& stream, std::span<const LinearTask> tasks);

}  // namespace aerie::kernels
