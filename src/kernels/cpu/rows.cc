#include "kernels/rows.h"

#include <cstddef>
#include <cstring>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_io.h"
#include "kernels/on_card.h"

namespace aerie::kernels {
namespace {

static_assert(sizeof(WeightedRow) == sizeof(PairOfRow) &&
              offsetof(WeightedRow, weight) == offsetof(PairOfRow, weight));

// Calls copy(from row, to row) for each i, in parallel.
template <typename From, typename To>
void copy_each(Stream& stream, ConstView x, View out, int64_t rows, From from, To to) {
    check_float("the source", x.dtype);
    check_float("the destination", out.dtype);
    CHECK(x.cols == out.cols, "{} columns into {}", x.cols, out.cols);
    const CpuOps& op = ops();
    parallel_rows(stream, rows, row_bytes(x) + row_bytes(out), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const RowIn source = row_in(x, from(i));
            if (x.dtype == out.dtype)
                std::memmove(out.row(to(i)), source.data, static_cast<size_t>(row_bytes(x)));
            else
                op.sum(&source, 1, x.cols, row_out(out, to(i)));
        }
    });
}

}  // namespace

void gather_rows(Stream& stream, ConstView table, const int32_t* ids, View out) {
    ON_CARD(stream, gather_rows(stream, table, ids, out));
    copy_each(
        stream, table, out, out.rows, [&](int64_t i) { return ids[i]; },
        [](int64_t i) { return i; });
}

void scatter_rows(Stream& stream, ConstView x, const int32_t* ids, View out) {
    copy_each(
        stream, x, out, x.rows, [](int64_t i) { return i; }, [&](int64_t i) { return ids[i]; });
}

void copy_rows(Stream& stream, ConstView x, View out) {
    ON_CARD(stream, copy_rows(stream, x, out));
    CHECK_EQ(x.rows, out.rows);
    copy_each(
        stream, x, out, x.rows, [](int64_t i) { return i; }, [](int64_t i) { return i; });
}

void sum_rows(Stream& stream, std::span<const ConstView> parts, View out) {
    ON_CARD(stream, sum_rows(stream, parts, out));
    constexpr size_t kMaxParts = 64;
    CHECK(!parts.empty() && parts.size() <= kMaxParts, "{} parts", parts.size());
    check_float("out", out.dtype);
    for (ConstView part : parts) {
        check_float("a part", part.dtype);
        CHECK(part.rows == out.rows && part.cols == out.cols, "part [{}, {}], out [{}, {}]",
              part.rows, part.cols, out.rows, out.cols);
    }
    const CpuOps& op = ops();
    const int64_t bytes = static_cast<int64_t>(parts.size() + 1) * row_bytes(out);
    parallel_rows(stream, out.rows, bytes, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            RowIn rows[kMaxParts];
            for (size_t p = 0; p < parts.size(); ++p) rows[p] = row_in(parts[p], i);
            op.sum(rows, static_cast<int>(parts.size()), out.cols, row_out(out, i));
        }
    });
}

void accumulate_rows(Stream& stream, const AccumulateArgs& args) {
    check_float("x", args.x.dtype);
    check_float("y", args.y.dtype);
    CHECK(args.x.cols == args.y.cols, "x has {} columns, y {}", args.x.cols, args.y.cols);
    if (args.y.rows == 0) return;
    const CpuOps& op = ops();
    const int64_t stride = args.x.row_stride * static_cast<int64_t>(size_of(args.x.dtype));
    const auto* pairs = reinterpret_cast<const PairOfRow*>(args.pairs);
    const int64_t bytes =
        row_bytes(args.y) + row_bytes(args.x) * args.offsets[args.y.rows] / args.y.rows;
    parallel_rows(stream, args.y.rows, bytes, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
            op.accumulate(row_in(args.x, 0), stride, pairs + args.offsets[i],
                          args.offsets[i + 1] - args.offsets[i], args.overwrite, args.y.cols,
                          row_out(args.y, i));
    });
}

}  // namespace aerie::kernels
