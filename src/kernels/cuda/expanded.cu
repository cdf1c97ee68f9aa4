// Attention with keys and values per head, on FlashInfer's kernel for Hopper.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/expanded.h"
#include "kernels/cuda/expanded_loads.cuh"
#include "kernels/cuda/tensor_map.h"
#include "tensor/cuda/check.h"

namespace aerie::kernels::cuda {
namespace {

using Element = cutlass::bfloat16_t;
using Traits = flashinfer::AttentionKernelTraits</*USE_TMA_LOAD_KV=*/true, 192, 128, /*CTA_Q=*/128,
                                                 /*CTA_KV=*/128, /*NUM_STAGES=*/2, Element, Element,
                                                 Element, int32_t, flashinfer::StandardAttention>;
using Epilogue = flashinfer::CollectiveEpilogue<Traits>;
static_assert(ExpandPlan::kTileRows == Traits::CTA_Q);

// So many bytes of keys and values stay in the second-level cache while all tiles of their heads
// pass.
constexpr int64_t kCacheBytes = 24 << 20;

CUtensorMap map_of(ConstView x) {
    return tensor_map({x.data, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, x.rows, x.cols, x.row_stride},
                      128, 64, 128);
}

int heads_at_once(const AttendTiles& a) {
    int heads = a.heads;
    while (heads % 2 == 0 && a.kv.rows * heads * 512 > kCacheBytes) heads /= 2;
    return heads;
}

template <bool kCausal>
void launch(Stream& stream, const AttendTiles& a) {
    using Loads = ExpandedLoads<Traits>;
    const auto kernel =
        flashinfer::PrefillWithKVCacheKernel<Loads, Epilogue, Traits,
                                             /*LEFT_SLIDING_WINDOW=*/false, kCausal, TileOfBlock>;
    constexpr int kSharedMemory = sizeof(typename Traits::SharedStorage);
    static const bool ready = [&] {
        CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        kSharedMemory));
        return true;
    }();
    CHECK(ready, "a kernel of attention");
    const typename Loads::Params loads{
        map_of(a.q), map_of(a.kv), map_of(a.k_pe), -1, {.sm_scale = a.scale}};
    const auto rows = static_cast<int>(a.out.rows);
    const typename Epilogue::Params epilogue = Epilogue::to_underlying_arguments(
        {reinterpret_cast<Element*>(a.out.data),
         flashinfer::get_gmem_layout(rows, a.heads, 128, a.out.row_stride, 128), a.lse,
         flashinfer::get_lse_gmem_layout(rows, a.heads)});
    kernel<<<static_cast<unsigned>(a.num_tiles * a.heads), Traits::NUM_THREADS, kSharedMemory,
             static_cast<cudaStream_t>(stream.queue())>>>(loads, epilogue,
                                                          {a.tiles, a.num_tiles, heads_at_once(a)});
    CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void attend_tiles(Stream& stream, const AttendTiles& a) {
    if (a.num_tiles == 0) return;
    a.causal ? launch<true>(stream, a) : launch<false>(stream, a);
}

}  // namespace aerie::kernels::cuda
