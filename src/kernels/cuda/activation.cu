#include "kernels/cuda/kernels.h"
#include "kernels/cuda/silu.cuh"

namespace aerie::kernels::cuda {

void silu_mul(Stream& stream, ConstView gate_up, View y) {
    check_float("gate_up", gate_up);
    check_float("y", y);
    CHECK(gate_up.rows == y.rows && gate_up.cols == 2 * y.cols, "gate_up [{}, {}], y [{}, {}]",
          gate_up.rows, gate_up.cols, y.rows, y.cols);
    launch_silu_mul(stream, gate_up, y, nullptr);
}

}  // namespace aerie::kernels::cuda
