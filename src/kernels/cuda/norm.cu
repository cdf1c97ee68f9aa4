#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm.cuh"

namespace aerie::kernels::cuda {
namespace {

struct Partials {
    RowsIn rows[kMaxPartials];
    int count = 0;
};

// One block a row: x += the partials, then y = rms_norm(x).
template <int kWidth>
__global__ void __launch_bounds__(kNormThreads)
    add_and_norm_kernel(RowsOut x, const __grid_constant__ Partials partials, const float* weight,
                        float eps, RowsOut y, int64_t cols) {
    after_earlier_kernels();
    const int64_t row = blockIdx.x;
    const RowsIn from{x.data, x.stride, x.bf16};
    const auto sum = [&](int64_t col, float(&v)[kWidth]) {
        load_group(from, row, col, v);
        for (int p = 0; p < partials.count; ++p) {
            float more[kWidth];
            load_group(partials.rows[p], row, col, more);
#pragma unroll
            for (int i = 0; i < kWidth; ++i) v[i] += more[i];
        }
    };
    store_and_norm<kWidth>(x, partials.count > 0, sum, weight, eps, y, cols);
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
        const int threads = row_grid(1, x.cols, width, kNormThreads).threads;
        launch_early(stream, dim3(static_cast<unsigned>(x.rows)), dim3(threads),
                     add_and_norm_kernel<width>, rows_out(x), partials, weight, eps, rows_out(y),
                     x.cols);
    });
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
