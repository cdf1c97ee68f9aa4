#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row_io.cuh"

namespace aerie::kernels::cuda {
namespace {

constexpr int kMaxThreads = 1024;

struct Partials {
    RowsIn rows[kMaxPartials];
    int count = 0;
};

// One block a row: x += the partials, rounded to x's type, then y = rms_norm(x). The number of
// threads, and with it the order of the sum of squares, depends on cols alone. The first group of
// each thread, mostly the only one, stays in registers from one half to the other.
template <int kWidth>
__global__ void __launch_bounds__(kMaxThreads)
    add_and_norm_kernel(RowsOut x, const __grid_constant__ Partials partials, const float* weight,
                        float eps, RowsOut y, int64_t cols) {
    const int64_t row = blockIdx.x;
    const RowsIn from{x.data, x.stride, x.bf16};
    const int64_t step = int64_t{blockDim.x} * kWidth;
    float first[kWidth] = {};
    float squares = 0;
    for (int64_t col = int64_t{threadIdx.x} * kWidth; col < cols; col += step) {
        float v[kWidth];
        load_group(from, row, col, v);
        for (int p = 0; p < partials.count; ++p) {
            float more[kWidth];
            load_group(partials.rows[p], row, col, more);
#pragma unroll
            for (int i = 0; i < kWidth; ++i) v[i] += more[i];
        }
        if (partials.count > 0) {
            if (x.bf16) {
#pragma unroll
                for (int i = 0; i < kWidth; ++i) v[i] = rounded_to_bf16(v[i]);
            }
            store_group(x, row, col, v);
        }
#pragma unroll
        for (int i = 0; i < kWidth; ++i) squares = __fmaf_rn(v[i], v[i], squares);
        if (col < step) {
#pragma unroll
            for (int i = 0; i < kWidth; ++i) first[i] = v[i];
        }
    }

    __shared__ float sums[32];
    for (int lane = 16; lane > 0; lane /= 2) squares += __shfl_xor_sync(~0u, squares, lane);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = squares;
    __syncthreads();
    float total = threadIdx.x % 32 < blockDim.x / 32 ? sums[threadIdx.x % 32] : 0.0f;
    for (int lane = 16; lane > 0; lane /= 2) total += __shfl_xor_sync(~0u, total, lane);
    const float factor = 1.0f / sqrtf(total / static_cast<float>(cols) + eps);

    const RowsIn weights{reinterpret_cast<const std::byte*>(weight), 0, false};
    for (int64_t col = int64_t{threadIdx.x} * kWidth; col < cols; col += step) {
        float w[kWidth], v[kWidth];
        load_group(weights, 0, col, w);
        if (col >= step) load_group(from, row, col, first);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) v[i] = first[i] * factor * w[i];
        store_group(y, row, col, v);
    }
}

void launch(Stream& stream, View x, const Partials& partials, bool groups, const float* weight,
            float eps, View y) {
    check_float("x", x);
    check_float("y", y);
    CHECK(x.rows == y.rows && x.cols == y.cols, "x [{}, {}], y [{}, {}]", x.rows, x.cols, y.rows,
          y.cols);
    if (x.empty()) return;
    groups = groups && in_groups(x, y) && reinterpret_cast<uintptr_t>(weight) % 16 == 0;
    with_width(groups, [&](auto width) {
        const int threads = row_grid(1, x.cols, width, kMaxThreads).threads;
        add_and_norm_kernel<width><<<static_cast<unsigned>(x.rows), threads, 0, queue_of(stream)>>>(
            rows_out(x), partials, weight, eps, rows_out(y), x.cols);
    });
    CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void rms_norm(Stream& stream, ConstView x, const float* weight, float eps, View y) {
    // Without partials x is only read.
    const View same{const_cast<std::byte*>(x.data), x.dtype, x.rows, x.cols, x.row_stride};
    launch(stream, same, {}, true, weight, eps, y);
}

void add_partials(Stream& stream, View x, std::span<const ConstView> partials) {
    CHECK(partials.size() <= size_t{kMaxPartials}, "{} partials", partials.size());
    ConstView parts[kMaxPartials + 1] = {x};
    std::copy(partials.begin(), partials.end(), parts + 1);
    if (!partials.empty()) sum_rows(stream, {parts, partials.size() + 1}, x);
}

void add_partials_and_norm(Stream& stream, View x, std::span<const ConstView> partials,
                           const float* weight, float eps, View y) {
    CHECK(partials.size() <= size_t{kMaxPartials}, "{} partials", partials.size());
    Partials rows;
    bool groups = true;
    for (ConstView p : partials) {
        check_float("a partial", p);
        CHECK(p.rows == x.rows && p.cols == x.cols, "partial [{}, {}], x [{}, {}]", p.rows, p.cols,
              x.rows, x.cols);
        groups = groups && in_groups(p);
        rows.rows[rows.count++] = rows_in(p);
    }
    launch(stream, x, rows, groups, weight, eps, y);
}

}  // namespace aerie::kernels::cuda
