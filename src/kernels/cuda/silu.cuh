#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_io.cuh"

namespace aerie::kernels::cuda {

// y = silu(gate) · up: a block for each row and so many groups of its columns. Rows from *num_rows
// on, where that is given, are left alone.
template <int kWidth>
__global__ void silu_mul_kernel(RowsIn gate, RowsIn up, RowsOut y, int64_t cols,
                                const int32_t* num_rows) {
    after_earlier_kernels();
    const int64_t col = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kWidth;
    if (col >= cols || (num_rows != nullptr && static_cast<int>(blockIdx.x) >= *num_rows)) return;
    float g[kWidth], u[kWidth];
    load_group(gate, blockIdx.x, col, g);
    load_group(up, blockIdx.x, col, u);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) g[i] = g[i] / (1.0f + expf(-g[i])) * u[i];
    store_group(y, blockIdx.x, col, g);
}

inline void launch_silu_mul(Stream& stream, ConstView gate_up, View y, const int32_t* num_rows) {
    if (y.empty()) return;
    const ConstView gate = gate_up.slice_cols(0, y.cols);
    const ConstView up = gate_up.slice_cols(y.cols, 2 * y.cols);
    with_width(in_groups(gate, up, y), [&](auto width) {
        const RowGrid grid = row_grid(y.rows, y.cols, width, 128);
        launch_early(stream, grid.blocks, dim3(grid.threads), silu_mul_kernel<width>, rows_in(gate),
                     rows_in(up), rows_out(y), y.cols, num_rows);
    });
}

}  // namespace aerie::kernels::cuda
