// FP8 times FP8 (W8A8): rows quantised by groups of 128 columns times weights with a scale for each
// block of 128 by 128, on DeepGEMM's kernels; sums in fp32, results bfloat16.
//
// Which of DeepGEMM's instances runs depends on the number of rows; a row's bits do not: all add in
// K's order, which fp8_test.cc holds them to.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "tensor/stream.h"
#include "tensor/view.h"

namespace aerie::kernels::cuda {

// Quantised rows, in memory of the card that is somebody else's.
struct Fp8Rows {
    uint8_t* values = nullptr;  // [scale_stride, cols] e4m3
    float* scales = nullptr;    // [cols / 128, scale_stride]: column r is row r's
    int64_t rows = 0;
    int64_t cols = 0;
    int64_t scale_stride = 0;  // rows in memory; those past the last are read and not used

    static size_t num_bytes(int64_t rows, int64_t cols);
    // In memory of num_bytes(), aligned to 256.
    static Fp8Rows at(void* memory, int64_t rows, int64_t cols);
};

// x: [rows, cols] bfloat16, cols a multiple of 128, rows a multiple of 8 elements apart. A group's
// scale is its largest magnitude (1e-30 at least; 448 where all are zero) / 448; value = x / scale,
// to the nearest.
void fp8_quantise(Stream& stream, ConstView x, const Fp8Rows& out);
// silu(gate) · up of gate_up [rows, 2 · cols], rounded to bfloat16 and quantised.
void fp8_silu_mul_quantise(Stream& stream, ConstView gate_up, const Fp8Rows& out);

// Whether weights [n, k] can be served: k a multiple of 128 up to 18432, n of 8; of groups, n of
// 128.
bool fp8_gemm_serves(int64_t n, int64_t k);

// y = x · wᵀ; y [x.rows, w.n()] bfloat16, its rows a multiple of 8 elements apart. w is FP8.
void fp8_gemm(Stream& stream, const Fp8Rows& x, const LinearWeight& w, View y);

// The same with a weight for each of num_groups, stacked in w: [num_groups · n, k]. Group g's rows
// are [begin, ends[g]) where begin is ends[g − 1] (or 0) rounded up to a multiple of tile_rows;
// what is between belongs to nobody and y's rows there may be written. ends is the card's and has
// padded_groups(num_groups) entries, of which those after the last group are its end rounded up.
struct Fp8Groups {
    const int32_t* ends = nullptr;
    int num_groups = 0;
    int tile_rows = 64;

    static int padded_groups(int num_groups);              // at most 256
    static int tile_rows_for(int64_t mean_rows_of_group);  // the faster one
};
// x.rows and y.rows are the capacity, a multiple of tile_rows.
void fp8_gemm_grouped(Stream& stream, const Fp8Rows& x, const LinearWeight& w,
                      const Fp8Groups& groups, View y);

// Which of the instances fp8_gemm takes for such a product, and with a choice of one's own: for
// bench/ and tests.
int fp8_dense_tile(int64_t m, int64_t n, int64_t k);
void fp8_gemm_with_tile(Stream& stream, int tile, const Fp8Rows& x, const LinearWeight& w, View y);

}  // namespace aerie::kernels::cuda
