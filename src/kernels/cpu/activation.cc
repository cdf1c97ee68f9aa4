#include "kernels/activation.h"

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_io.h"
#include "kernels/on_card.h"

namespace aerie::kernels {

void silu_mul(Stream& stream, ConstView gate_up, View y) {
    ON_CARD(stream, silu_mul(stream, gate_up, y));
    check_float("gate_up", gate_up.dtype);
    check_float("y", y.dtype);
    CHECK(gate_up.rows == y.rows && gate_up.cols == 2 * y.cols, "gate_up [{}, {}], y [{}, {}]",
          gate_up.rows, gate_up.cols, y.rows, y.cols);
    const CpuOps& op = ops();
    const ConstView gate = gate_up.slice_cols(0, y.cols);
    const ConstView up = gate_up.slice_cols(y.cols, 2 * y.cols);
    parallel_rows(stream, y.rows, 3 * row_bytes(y), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
            op.silu_mul(row_in(gate, i), row_in(up, i), y.cols, row_out(y, i));
    });
}

}  // namespace aerie::kernels
