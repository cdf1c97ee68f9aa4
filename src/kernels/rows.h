// Moving, casting and adding rows. float32 and bfloat16 on either side; a cast rounds once.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/stream.h"
#include "tensor/view.h"

namespace aerie::kernels {

// out[i] = table[ids[i]]: the embedding. ids: [out.rows], each a row of the table.
void gather_rows(Stream& stream, ConstView table, const int32_t* ids, View out);

// out[ids[i]] = x[i], ids without repeats.
void scatter_rows(Stream& stream, ConstView x, const int32_t* ids, View out);

// out = x, cast. The same shape; may be the same memory where the types are the same.
void copy_rows(Stream& stream, ConstView x, View out);

// out = round(parts[0] + parts[1] + …), fp32, in order. At least one part; out may be one of them.
void sum_rows(Stream& stream, std::span<const ConstView> parts, View out);

// y[i] += weight · x[j], fp32, for the (row of x, weight) pairs of each row of y in their order; y
// is float32 or bfloat16, rounded once after its last pair, or, with overwrite, begins at 0.
struct WeightedRow {
    int32_t row = 0;  // of x
    float weight = 0.0f;
};
struct AccumulateArgs {
    ConstView x;                         // [n, cols] float32 or compute type
    const int32_t* offsets = nullptr;    // [y.rows + 1] into pairs
    const WeightedRow* pairs = nullptr;  // [offsets[y.rows]]
    View y;                              // [m, cols]; does not overlap x
    bool overwrite = false;
};
void accumulate_rows(Stream& stream, const AccumulateArgs& args);

}  // namespace aerie::kernels
