#include "kernels/cuda/tensor_map.h"

#include <cuda_runtime.h>

#include "tensor/cuda/check.h"

namespace aerie::kernels::cuda {
namespace {

// The driver's encoder, found at run time so that nothing links with the driver. It computes on the
// host, in about as long as a look into a table of earlier results would take.
decltype(&cuTensorMapEncodeTiled) encoder() {
    static const auto found = [] {
        void* function = nullptr;
        cudaDriverEntryPointQueryResult result{};
        CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                    cudaEnableDefault, &result));
        CHECK(result == cudaDriverEntryPointSuccess && function != nullptr,
              "the driver has no cuTensorMapEncodeTiled");
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
    }();
    return found;
}

}  // namespace

CUtensorMap tensor_map(const MapMatrix& m, int box_rows, int box_cols, int swizzle) {
    CUtensorMap map;
    const cuuint64_t sizes[] = {static_cast<cuuint64_t>(m.cols), static_cast<cuuint64_t>(m.rows)};
    const cuuint64_t strides[] = {static_cast<cuuint64_t>(m.row_stride * m.element_bytes)};
    const cuuint32_t box[] = {
        static_cast<cuuint32_t>(swizzle == 0 ? box_cols : swizzle / m.element_bytes),
        static_cast<cuuint32_t>(box_rows)};
    const cuuint32_t steps[] = {1, 1};
    const CUtensorMapSwizzle mode = swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                    : swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                    : swizzle == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                                    : CU_TENSOR_MAP_SWIZZLE_NONE;
    const CUresult result =
        encoder()(&map, m.type, 2, const_cast<void*>(m.data), sizes, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, mode, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    CHECK(result == CUDA_SUCCESS, "[{}, {}] at {}, rows {} apart: CUDA's error {}", m.rows, m.cols,
          m.data, m.row_stride, static_cast<int>(result));
    return map;
}

}  // namespace aerie::kernels::cuda
