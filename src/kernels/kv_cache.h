// Moves rows in and out of one layer's KV pool [num_blocks, page_size, width].
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
// out: [n, width] of the pool's type.
void kv_read(Stream& stream, const KvPool& pool, const int64_t* slots, View out);
// Whole blocks inside one pool; no block is both read and written.
void kv_copy_blocks(Stream& stream, const KvPool& pool, const int32_t* from, const int32_t* to,
                    int64_t num_blocks);

}  // namespace aerie::kernels
