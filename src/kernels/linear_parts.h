// A weight of the card whose sources come one after the other, so that the host holds one at a
// time: a layer's experts, stacked.
#pragma once

#include <functional>

#include "base/result.h"
#include "kernels/linear.h"

namespace aerie::kernels {

// Source i, whose bytes stay until the next call.
using LinearPart = std::function<Result<LinearSource>(size_t i)>;

// pack_linear of num_parts sources, n rows together, on the card. FP8 is kept if the first source
// can stay FP8; another that cannot then is an error.
Result<LinearWeight> pack_linear_parts(int64_t n, size_t num_parts, bool keep_fp8,
                                       const LinearPart& part);

}  // namespace aerie::kernels
