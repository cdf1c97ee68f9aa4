// Writes rows into one layer's KV pool [num_blocks, page_size, width].
#pragma once

#include <cstdint>

#include "tensor/stream.h"
#include "tensor/view.h"

namespace aerie::kernels {

struct KvPool {
    void* layer = nullptr;  // [num_blocks, page_size, width]
    DType dtype = DType::kBF16;
    int page_size = 64;
    int width = 576;
};

// Where a row lives: slot = block · page_size + offset in the block. A negative slot is skipped
// (the row belongs to another cp rank). rows: [n, width] of the pool's type; slots: [n], no slot
// twice.
void kv_write(Stream& stream, const KvPool& pool, ConstView rows, const int64_t* slots);

}  // namespace aerie::kernels
