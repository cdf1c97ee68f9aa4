#include "kernels/cuda/fp8_gemm.h"
#include "kernels/cuda/fp8_quantise.cuh"
#include "tensor/cuda/check.h"

namespace aerie::kernels::cuda {
namespace {

constexpr int kThreads = 256, kGroupThreads = 16;

template <bool kSilu>
__global__ void __launch_bounds__(kThreads)
    quantise_rows(const __nv_bfloat16* x, int64_t row_stride, int64_t rows, int cols,
                  uint8_t* values, float* scales, int64_t scale_stride) {
    const int groups_of_row = cols / 128;
    const int64_t group = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kGroupThreads;
    const bool mine = group < rows * groups_of_row;  // all lanes take part in the shuffles
    const int64_t row = mine ? group / groups_of_row : 0;
    const int in_row = mine ? static_cast<int>(group % groups_of_row) : 0;
    const int lane = threadIdx.x % kGroupThreads;
    const __nv_bfloat16* from = x + row * row_stride + in_row * 128 + lane * 8;
    Eight eight = Eight::load(from);
    if constexpr (kSilu) eight = silu_mul(eight, Eight::load(from + cols));
    const Quantised q = quantise(eight);
    if (!mine) return;
    *reinterpret_cast<uint2*>(values + row * cols + in_row * 128 + lane * 8) = q.values;
    if (lane == 0) scales[in_row * scale_stride + row] = q.scale;
}

template <bool kSilu>
void launch(Stream& stream, ConstView x, const Fp8Rows& out) {
    CHECK(x.dtype == DType::kBF16 && x.rows == out.rows && x.cols == (kSilu ? 2 : 1) * out.cols &&
              out.cols % 128 == 0 && x.row_stride % 8 == 0,
          "[{}, {}] of {} to [{}, {}]", x.rows, x.cols, name_of(x.dtype), out.rows, out.cols);
    if (x.rows == 0) return;
    const int64_t groups = out.rows * (out.cols / 128);
    const auto blocks = static_cast<unsigned>((groups * kGroupThreads + kThreads - 1) / kThreads);
    quantise_rows<kSilu><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream.queue())>>>(
        reinterpret_cast<const __nv_bfloat16*>(x.data), x.row_stride, out.rows,
        static_cast<int>(out.cols), out.values, out.scales, out.scale_stride);
    CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void fp8_quantise(Stream& stream, ConstView x, const Fp8Rows& out) {
    launch<false>(stream, x, out);
}

void fp8_silu_mul_quantise(Stream& stream, ConstView gate_up, const Fp8Rows& out) {
    launch<true>(stream, gate_up, out);
}

}  // namespace aerie::kernels::cuda
