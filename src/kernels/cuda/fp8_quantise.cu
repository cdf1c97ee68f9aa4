#include "kernels/cuda/fp8_gemm.h"
#include "kernels/cuda/fp8_quantise.cuh"
#include "kernels/cuda/launch.cuh"

namespace aerie::kernels::cuda {
namespace {

constexpr int kThreads = 128, kGroupThreads = 128 / kColumns;

template <bool kSilu>
__global__ void __launch_bounds__(kThreads)
    quantise_rows(const __nv_bfloat16* x, int64_t row_stride, Fp8Rows out) {
    after_earlier_kernels();
    const int cols = static_cast<int>(out.cols), groups_of_row = cols / 128;
    const int64_t group = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kGroupThreads;
    const bool mine = group < out.rows * groups_of_row;  // the others repeat the first
    const int64_t row = mine ? group / groups_of_row : 0;
    const int in_row = mine ? static_cast<int>(group % groups_of_row) : 0;
    const int column = in_row * 128 + threadIdx.x % kGroupThreads * kColumns;
    const __nv_bfloat16* from = x + row * row_stride + column;
    Columns columns = Columns::load(from);
    if constexpr (kSilu) columns = silu_mul(columns, Columns::load(from + cols));
    const Quantised q = quantise(columns);
    if (mine) q.store(out, row, column);
}

template <bool kSilu>
void launch(Stream& stream, ConstView x, const Fp8Rows& out) {
    CHECK(x.dtype == DType::kBF16 && x.rows == out.rows && x.cols == (kSilu ? 2 : 1) * out.cols &&
              out.cols % 128 == 0 && x.row_stride % 8 == 0,
          "[{}, {}] of {} to [{}, {}]", x.rows, x.cols, name_of(x.dtype), out.rows, out.cols);
    if (x.rows == 0) return;
    const int64_t threads = out.rows * (out.cols / kColumns);
    launch_early(stream, dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads)),
                 dim3(kThreads), quantise_rows<kSilu>,
                 reinterpret_cast<const __nv_bfloat16*>(x.data), x.row_stride, out);
}

}  // namespace

void fp8_quantise(Stream& stream, ConstView x, const Fp8Rows& out) {
    launch<false>(stream, x, out);
}

void fp8_silu_mul_quantise(Stream& stream, ConstView gate_up, const Fp8Rows& out) {
    launch<true>(stream, gate_up, out);
}

}  // namespace aerie::kernels::cuda
