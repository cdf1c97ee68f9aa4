// What follows the first product of attention: its norms, the rotation of k_pe, and the row's KV.
#pragma once

#include <cstdint>

#include "kernels/kv_cache.h"
#include "kernels/rope.h"
#include "tensor/stream.h"
#include "tensor/view.h"

namespace aerie::kernels {

struct QkvArgs {
    View qkv;  // [rows, query_width + pool.width] query, latent and k_pe, in place
    int64_t query_width = 0;
    const float* query_norm = nullptr;   // [query_width]; null: the query stays as it is
    const float* latent_norm = nullptr;  // [pool.width − the table's dim]
    float eps = 0;
    const int32_t* positions = nullptr;  // [rows]
    KvPool pool;
    const int64_t* slots = nullptr;  // [rows] as kv_write has them
};
// The bits of rms_norm of query and latent, rope of k_pe and kv_write of the two latter.
void finish_qkv(Stream& stream, const RopeTable& table, const QkvArgs& args);

}  // namespace aerie::kernels
