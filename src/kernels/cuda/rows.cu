#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_io.cuh"

namespace aerie::kernels::cuda {
namespace {

constexpr int kMaxParts = kMaxPartials + 1;

template <int kWidth>
__global__ void gather_kernel(RowsIn x, const int32_t* ids, RowsOut y, int64_t cols) {
    after_earlier_kernels();
    const int64_t col = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kWidth;
    if (col >= cols) return;
    float v[kWidth];
    load_group(x, ids == nullptr ? blockIdx.x : ids[blockIdx.x], col, v);
    store_group(y, blockIdx.x, col, v);
}

void copy(Stream& stream, ConstView x, const int32_t* ids, View out) {
    check_float("the source", x);
    check_float("the destination", out);
    CHECK(x.cols == out.cols, "{} columns into {}", x.cols, out.cols);
    if (out.empty()) return;
    with_width(in_groups(x, out), [&](auto width) {
        const RowGrid grid = row_grid(out.rows, out.cols, width);
        launch_early(stream, grid.blocks, dim3(grid.threads), gather_kernel<width>, rows_in(x), ids,
                     rows_out(out), out.cols);
    });
}

struct Parts {
    RowsIn rows[kMaxParts];
    int count = 0;
};

template <int kWidth>
__global__ void sum_kernel(const __grid_constant__ Parts parts, RowsOut y, int64_t cols) {
    after_earlier_kernels();
    const int64_t col = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kWidth;
    if (col >= cols) return;
    float total[kWidth];
    load_group(parts.rows[0], blockIdx.x, col, total);
    for (int p = 1; p < parts.count; ++p) {
        float v[kWidth];
        load_group(parts.rows[p], blockIdx.x, col, v);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) total[i] += v[i];
    }
    store_group(y, blockIdx.x, col, total);
}

}  // namespace

void gather_rows(Stream& stream, ConstView table, const int32_t* ids, View out) {
    copy(stream, table, ids, out);
}

void copy_rows(Stream& stream, ConstView x, View out) {
    CHECK(x.rows == out.rows, "{} rows into {}", x.rows, out.rows);
    copy(stream, x, nullptr, out);
}

void sum_rows(Stream& stream, std::span<const ConstView> parts, View out) {
    CHECK(!parts.empty() && parts.size() <= kMaxParts, "{} parts", parts.size());
    check_float("out", out);
    Parts rows;
    bool groups = in_groups(out);
    for (ConstView part : parts) {
        check_float("a part", part);
        CHECK(part.rows == out.rows && part.cols == out.cols, "part [{}, {}], out [{}, {}]",
              part.rows, part.cols, out.rows, out.cols);
        groups = groups && in_groups(part);
        rows.rows[rows.count++] = rows_in(part);
    }
    if (out.empty()) return;
    with_width(groups, [&](auto width) {
        const RowGrid grid = row_grid(out.rows, out.cols, width);
        launch_early(stream, grid.blocks, dim3(grid.threads), sum_kernel<width>, rows,
                     rows_out(out), out.cols);
    });
}

}  // namespace aerie::kernels::cuda
