#include "kernels/cpu/ops.h"

namespace aerie::kernels {

const CpuOps& amx_ops() { return avx512_ops(); }

}  // namespace aerie::kernels
