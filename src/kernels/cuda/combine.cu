// The end of the routed experts: what each row's experts made, weighed and added up.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm.cuh"
#include "kernels/routed.h"

namespace aerie::kernels {
namespace cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kProcessors = 132;
// Lines that a thread reads before it adds: what registers hold, of 1024 threads beside the norm's.
constexpr int batch_of(bool bf16_lines) { return bf16_lines ? 8 : 4; }
constexpr int batch_beside_norm(bool bf16_lines) { return bf16_lines ? 4 : 2; }

// A group of columns as it lies in memory: what a thread waits for takes half as many registers as
// its values.
template <bool kBf16, int kWidth>
struct Raw {
    float v[kWidth];
    __device__ void load(const RowsIn& rows, int64_t row, int64_t col) {
        load_group(RowsIn{rows.data, rows.stride, kBf16}, row, col, v);
    }
    __device__ void values(float (&to)[kWidth]) const {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) to[i] = v[i];
    }
};
template <>
struct Raw<true, 8> {
    uint4 bits;
    __device__ void load(const RowsIn& rows, int64_t row, int64_t col) {
        bits = *reinterpret_cast<const uint4*>(rows.data + row * rows.stride + col * 2);
    }
    __device__ void values(float (&to)[8]) const {
        const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float2 two = floats_of(words[i]);
            to[2 * i] = two.x, to[2 * i + 1] = two.y;
        }
    }
};

// Of columns that a thread has: Σ weight · line in ascending expert, fp32. A line in bfloat16 is
// what a product was rounded to (fp8_experts.cu), where one rounding is saved; a float32 one is as
// the CPU has it.
template <bool kBf16Lines, int kAtOnce, int kWidth>
__device__ void add_lines(const RowsIn& results, const RoutedLine* choices, int top_k, int64_t col,
                          float (&total)[kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) total[i] = 0.0f;
    for (int base = 0; base < top_k; base += kAtOnce) {
        RoutedLine choice[kAtOnce];
        Raw<kBf16Lines, kWidth> raw[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j)
            choice[j] = base + j < top_k ? choices[base + j] : RoutedLine{-1, 0.0f};
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j)
            if (choice[j].line >= 0) raw[j].load(results, choice[j].line, col);
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
            if (choice[j].line < 0) continue;
            float v[kWidth];
            raw[j].values(v);
#pragma unroll
            for (int i = 0; i < kWidth; ++i) {
                if constexpr (kBf16Lines)
                    total[i] = fmaf(choice[j].weight, v[i], total[i]);
                else
                    total[i] = __fadd_rn(total[i], __fmul_rn(choice[j].weight, v[i]));
            }
        }
    }
}

struct Lines {
    RowsIn results;
    const RoutedLine* choices;
    int top_k;
};

template <bool kBf16Lines, int kWidth>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(Lines lines, RowsIn addend, RowsOut out, int64_t cols) {
    after_earlier_kernels();
    const int64_t row = blockIdx.x;
    const int64_t col = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kWidth;
    if (col >= cols) return;
    float total[kWidth];
    add_lines<kBf16Lines, batch_of(kBf16Lines)>(lines.results, lines.choices + row * lines.top_k,
                                                lines.top_k, col, total);
    if (addend.data != nullptr) {
        float v[kWidth];
        load_group(addend, row, col, v);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) total[i] = v[i] + rounded_to_bf16(total[i]);
    }
    store_group(out, row, col, total);
}

// kFold: of many rows each block has half of its threads, so that two are on a multiprocessor, of
// which one reads while the other adds up.
template <bool kBf16Lines, int kFold>
__global__ void __launch_bounds__(kNormThreads / kFold, kFold)
    combine_and_norm_kernel(Lines lines, RowsIn addend, RowsOut x, const float* weight, float eps,
                            RowsOut y, int64_t cols) {
    after_earlier_kernels();
    const int64_t row = blockIdx.x;
    const RoutedLine* choices = lines.choices + row * lines.top_k;
    const RowsIn from{x.data, x.stride, true};
    const auto sum = [&](int64_t col, float(&v)[8]) {
        Raw<true, 8> before, shared;
        before.load(from, row, col);
        shared.load(addend, row, col);
        float routed[8];
        add_lines<kBf16Lines, batch_beside_norm(kBf16Lines)>(lines.results, choices, lines.top_k,
                                                             col, routed);
        shared.values(v);
#pragma unroll
        for (int i = 0; i < 8; ++i) routed[i] = rounded_to_bf16(v[i] + rounded_to_bf16(routed[i]));
        before.values(v);
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] += routed[i];
    };
    store_and_norm<8, kFold>(x, true, sum, weight, eps, y, cols);
}

Lines lines_of(const RoutedLines& l) { return {rows_in(l.results), l.choices, l.top_k}; }

}  // namespace
}  // namespace cuda

using namespace cuda;

void combine_lines(Stream& stream, const RoutedLines& lines, ConstView addend, View out) {
    check_float("out", out);
    CHECK(lines.results.cols == out.cols, "lines of {} columns, out [{}, {}]", lines.results.cols,
          out.rows, out.cols);
    CHECK(addend.data == nullptr || (addend.rows == out.rows && addend.cols == out.cols),
          "addend [{}, {}], out [{}, {}]", addend.rows, addend.cols, out.rows, out.cols);
    if (out.empty()) return;
    const bool groups =
        in_groups(lines.results, out) && (addend.data == nullptr || in_groups(addend));
    const bool bf16 = lines.results.dtype == DType::kBF16;
    const RowsIn more = addend.data == nullptr ? RowsIn{} : rows_in(addend);
    with_width(groups, [&](auto width) {
        const RowGrid grid = row_grid(out.rows, out.cols, width, kThreads);
        launch_early(stream, grid.blocks, dim3(grid.threads),
                     bf16 ? combine_kernel<true, width> : combine_kernel<false, width>,
                     lines_of(lines), more, rows_out(out), out.cols);
    });
}

void combine_and_norm(Stream& stream, const CombineArgs& a) {
    const auto fits = [&](ConstView v) {
        return v.dtype == DType::kBF16 && v.rows == a.x.rows && v.cols == a.x.cols;
    };
    CHECK(fits(a.x) && fits(a.y) && fits(a.addend) && a.lines.results.cols == a.x.cols,
          "x [{}, {}], y [{}, {}], addend [{}, {}], lines of {}; expected bfloat16 of one shape",
          a.x.rows, a.x.cols, a.y.rows, a.y.cols, a.addend.rows, a.addend.cols,
          a.lines.results.cols);
    CHECK(in_groups(a.lines.results, a.x, a.y, a.addend) &&
              reinterpret_cast<uintptr_t>(a.weight) % 16 == 0,
          "rows of {} columns that do not begin at multiples of 16 bytes", a.x.cols);
    if (a.x.empty()) return;
    const int threads = row_grid(1, a.x.cols, 8, kNormThreads).threads;
    const bool bf16 = a.lines.results.dtype == DType::kBF16;
    const bool fold = a.x.rows > kProcessors && threads % 64 == 0;
    const auto kernel =
        fold ? (bf16 ? combine_and_norm_kernel<true, 2> : combine_and_norm_kernel<false, 2>)
             : (bf16 ? combine_and_norm_kernel<true, 1> : combine_and_norm_kernel<false, 1>);
    launch_early(stream, dim3(static_cast<unsigned>(a.x.rows)), dim3(fold ? threads / 2 : threads),
                 kernel, lines_of(a.lines), rows_in(a.addend), rows_out(a.x), a.weight, a.eps,
                 rows_out(a.y), a.x.cols);
}

}  // namespace aerie::kernels
