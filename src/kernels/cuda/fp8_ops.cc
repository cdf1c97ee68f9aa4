#include "kernels/cuda/fp8_ops.h"

#include "kernels/cuda/fp8_gemm.h"

namespace aerie::kernels::cuda {
namespace {

bool is_fp8(const LinearWeight& w) { return w.storage() == DType::kF8E4M3; }

bool aligned(ConstView x) {
    return x.row_stride * static_cast<int64_t>(size_of(x.dtype)) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

bool result_fits(View y) { return y.dtype == DType::kBF16 && aligned(y); }

Fp8Rows quantised(Stream& stream, ConstView x) {
    const Fp8Rows rows = Fp8Rows::at(
        stream.card_scratch(Stream::CardScratch::kGemm, Fp8Rows::num_bytes(x.rows, x.cols)), x.rows,
        x.cols);
    fp8_quantise(stream, x, rows);
    return rows;
}

}  // namespace

bool fp8_serves(const LinearTask& t) {
    return is_fp8(*t.w) && t.x_rows == nullptr && fp8_gemm_serves(t.w->n(), t.w->k()) &&
           result_fits(t.y) && aligned(t.x);
}

void fp8_linear(Stream& stream, const LinearTask& t) {
    if (t.y.rows > 0) fp8_gemm(stream, quantised(stream, t.x.slice_rows(0, t.y.rows)), *t.w, t.y);
}

bool fp8_serves(ConstView x, const ExpertWeights& w, View out) {
    return aligned(x) && is_fp8(w.gate_up) && is_fp8(w.down) &&
           fp8_gemm_serves(w.gate_up.n(), w.gate_up.k()) &&
           fp8_gemm_serves(w.down.n(), w.down.k()) && result_fits(out);
}

void fp8_dense_ffn(Stream& stream, ConstView x, const ExpertWeights& w, View out) {
    if (x.rows == 0) return;
    const int64_t inner = w.down.k();
    const size_t product_bytes = size_t(x.rows) * 2 * inner * sizeof(BF16);
    const size_t at = (product_bytes + 255) / 256 * 256;
    auto* memory = static_cast<std::byte*>(stream.card_scratch(
        Stream::CardScratch::kActivations, at + Fp8Rows::num_bytes(x.rows, inner)));
    const View gate_up(memory, DType::kBF16, x.rows, 2 * inner);
    const Fp8Rows product = Fp8Rows::at(memory + at, x.rows, inner);
    fp8_gemm(stream, quantised(stream, x), w.gate_up, gate_up);
    fp8_silu_mul_quantise(stream, gate_up, product);
    fp8_gemm(stream, product, w.down, out);
}

}  // namespace aerie::kernels::cuda
