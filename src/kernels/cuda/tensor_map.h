// Descriptions of matrices on the card for its copy engine (TMA).
#pragma once

#include <cuda.h>

#include <cstdint>

namespace aerie::kernels::cuda {

struct MapMatrix {
    const void* data;
    CUtensorMapDataType type;
    int64_t element_bytes, rows, cols,
        row_stride;  // row_stride in elements, a multiple of 16 bytes
};

// Loads and stores of box_rows × box_cols of m; swizzle in bytes, which then are what a box has of
// a row, 0 for none. What lies past the matrix's end reads as zero and is not written.
CUtensorMap tensor_map(const MapMatrix& m, int box_rows, int box_cols, int swizzle);

}  // namespace aerie::kernels::cuda
