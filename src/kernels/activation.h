// SwiGLU's product.
#pragma once

#include "tensor/stream.h"
#include "tensor/view.h"

namespace aerie::kernels {

// y = silu(gate) · up, silu(a) = a / (1 + exp(−a)), in fp32, rounded once. gate_up: [M, 2·I], gate
// in the first I columns; y: [M, I]; float32 or bfloat16 each. y does not overlap gate_up.
void silu_mul(Stream& stream, ConstView gate_up, View y);

}  // namespace aerie::kernels
