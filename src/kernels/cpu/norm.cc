#include "kernels/norm.h"

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_io.h"
#include "kernels/on_card.h"

namespace aerie::kernels {
namespace {

void check_partials(View x, std::span<const ConstView> partials) {
    check_float("x", x.dtype);
    CHECK(partials.size() <= size_t{kMaxPartials}, "{} partials", partials.size());
    for (ConstView p : partials) {
        check_float("a partial", p.dtype);
        CHECK(p.rows == x.rows && p.cols == x.cols, "partial [{}, {}], x [{}, {}]", p.rows, p.cols,
              x.rows, x.cols);
    }
}

void add_row(const CpuOps& op, View x, std::span<const ConstView> partials, int64_t i) {
    RowIn parts[kMaxPartials + 1] = {row_in(x, i)};
    int num_parts = 1;
    for (ConstView p : partials) parts[num_parts++] = row_in(p, i);
    op.sum(parts, num_parts, x.cols, row_out(x, i));
}

}  // namespace

void rms_norm(Stream& stream, ConstView x, const float* weight, float eps, View y) {
    ON_CARD(stream, rms_norm(stream, x, weight, eps, y));
    check_float("x", x.dtype);
    check_float("y", y.dtype);
    CHECK(x.rows == y.rows && x.cols == y.cols, "x [{}, {}], y [{}, {}]", x.rows, x.cols, y.rows,
          y.cols);
    const CpuOps& op = ops();
    parallel_rows(stream, x.rows, 2 * row_bytes(x), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
            op.rms_norm(row_in(x, i), weight, eps, x.cols, row_out(y, i));
    });
}

void add_partials(Stream& stream, View x, std::span<const ConstView> partials) {
    ON_CARD(stream, add_partials(stream, x, partials));
    check_partials(x, partials);
    const CpuOps& op = ops();
    const int64_t bytes = (static_cast<int64_t>(partials.size()) * 2 + 1) * row_bytes(x);
    parallel_rows(stream, x.rows, bytes, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) add_row(op, x, partials, i);
    });
}

void add_partials_and_norm(Stream& stream, View x, std::span<const ConstView> partials,
                           const float* weight, float eps, View y) {
    ON_CARD(stream, add_partials_and_norm(stream, x, partials, weight, eps, y));
    check_partials(x, partials);
    check_float("y", y.dtype);
    CHECK(x.rows == y.rows && x.cols == y.cols, "x [{}, {}], y [{}, {}]", x.rows, x.cols, y.rows,
          y.cols);
    const CpuOps& op = ops();
    const int64_t bytes = (static_cast<int64_t>(partials.size()) * 2 + 3) * row_bytes(x);
    parallel_rows(stream, x.rows, bytes, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            add_row(op, x, partials, i);
            op.rms_norm(row_in(x, i), weight, eps, x.cols, row_out(y, i));
        }
    });
}

}  // namespace aerie::kernels
