// From views to the rows that the inner loops take.
#pragma once

#include "base/check.h"
#include "kernels/cpu/ops.h"
#include "tensor/view.h"

namespace aerie::kernels {

inline void check_float(const char* what, DType dtype) {
    CHECK(dtype == DType::kF32 || dtype == DType::kBF16, "{} is {}, not float32 or bfloat16", what,
          name_of(dtype));
}
inline RowIn row_in(ConstView x, int64_t i) { return {x.row(i), x.dtype == DType::kBF16}; }
inline RowOut row_out(View y, int64_t i) { return {y.row(i), y.dtype == DType::kBF16}; }
inline int64_t row_bytes(ConstView x) { return x.cols * static_cast<int64_t>(size_of(x.dtype)); }

}  // namespace aerie::kernels
