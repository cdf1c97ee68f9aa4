#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_io.cuh"

namespace aerie::kernels::cuda {
namespace {

// Unit: what one thread moves at once; bytes are a multiple of it, and addresses too.
template <typename Unit>
__global__ void kv_write_kernel(std::byte* pool, const std::byte* rows, int64_t row_stride,
                                const int64_t* slots, int64_t bytes) {
    after_earlier_kernels();
    const int64_t slot = slots[blockIdx.x];
    if (slot < 0) return;
    auto* to = reinterpret_cast<Unit*>(pool + slot * bytes);
    const auto* from = reinterpret_cast<const Unit*>(rows + blockIdx.x * row_stride);
    for (int64_t i = threadIdx.x; i < bytes / static_cast<int64_t>(sizeof(Unit)); i += blockDim.x)
        to[i] = from[i];
}

}  // namespace

void kv_write(Stream& stream, const KvPool& pool, ConstView rows, const int64_t* slots) {
    CHECK(rows.dtype == pool.dtype && rows.cols == pool.width, "rows [{}, {}] {}, pool {} {}",
          rows.rows, rows.cols, name_of(rows.dtype), pool.width, name_of(pool.dtype));
    if (rows.empty()) return;
    const int64_t element = static_cast<int64_t>(size_of(pool.dtype));
    const int64_t bytes = rows.cols * element, stride = rows.row_stride * element;
    const bool wide = bytes % 16 == 0 && stride % 16 == 0 &&
                      reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 &&
                      reinterpret_cast<uintptr_t>(pool.layer) % 16 == 0;
    const auto kernel = wide ? kv_write_kernel<uint4> : kv_write_kernel<uint8_t>;
    launch_early(stream, dim3(static_cast<unsigned>(rows.rows)), dim3(96), kernel,
                 static_cast<std::byte*>(pool.layer), rows.data, stride, slots, bytes);
}

}  // namespace aerie::kernels::cuda
