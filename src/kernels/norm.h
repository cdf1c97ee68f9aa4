// RMSNorm and the residual stream. All arithmetic in fp32; each output is rounded once to its type.
#pragma once

#include <span>

#include "tensor/stream.h"
#include "tensor/view.h"

namespace aerie::kernels {

// y = x / sqrt(mean(x²) + eps) · weight. x, y: [rows, cols] float32 or bfloat16 each; y may be x.
// weight: float32 [cols].
void rms_norm(Stream& stream, ConstView x, const float* weight, float eps, View y);

// x = round(x + partials[0] + partials[1] + …), added in this order in fp32. x: [rows, cols];
// partials: [rows, cols], float32 or the compute type, at most kMaxPartials; none may overlap x.
inline constexpr int kMaxPartials = 64;
void add_partials(Stream& stream, View x, std::span<const ConstView> partials);

// add_partials, then y = rms_norm(x) of the rounded x: the same bits as the two calls.
void add_partials_and_norm(Stream& stream, View x, std::span<const ConstView> partials,
                           const float* weight, float eps, View y);

}  // namespace aerie::kernels
