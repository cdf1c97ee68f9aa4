#include "kernels/cuda/fp8_gemm.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <mutex>

#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/fp8_tile.h"
#include "kernels/cuda/tensor_map.h"
#include "tensor/cuda/check.h"

namespace aerie::kernels::cuda {
namespace {

// Whole blocks of rows are read, what is past the last row too: reading past the end of a tensor,
// for which zeros are made, takes up to a third longer.
constexpr int64_t kPadRows = 128;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Once for each kernel, not for each launch.
void allow_shared_memory() {
    static std::once_flag once;
    std::call_once(once, [] {
        for (std::span<const Fp8Tile> tiles : {fp8_dense_tiles(), fp8_grouped_tiles()})
            for (const Fp8Tile& t : tiles)
                CUDA_CHECK(cudaFuncSetAttribute(
                    t.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kFp8SharedMemory));
    });
}

// n: of one group.
void launch(Stream& stream, const Fp8Tile& tile, const Fp8Rows& x, const LinearWeight& w, int64_t n,
            const int32_t* group_ends, View y) {
    CHECK(w.storage() == DType::kF8E4M3 && fp8_gemm_serves(n, w.k()), "weights [{}, {}] of {}", n,
          w.k(), name_of(w.storage()));
    CHECK(x.cols == w.k() && y.rows == x.rows && y.cols == n && y.dtype == DType::kBF16 &&
              y.row_stride % 8 == 0,
          "[{}, {}] times [{}, {}] to [{}, {}] of {}", x.rows, x.cols, n, w.k(), y.rows, y.cols,
          name_of(y.dtype));
    allow_shared_memory();
    const CUtensorMap rows =
        tensor_map({x.values, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, x.scale_stride, x.cols, x.cols},
                   tile.block_m, 128, 128);
    const CUtensorMap weights = tensor_map(
        {w.data(), CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, w.n(), w.k(), w.k()}, tile.block_n, 128, 128);
    const CUtensorMap result =
        tensor_map({y.data, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, y.rows, y.cols, y.row_stride},
                   tile.block_m, tile.block_n, fp8_swizzle(tile.block_n));
    const CUtensorMap scales = tensor_map({x.scales, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4,
                                           x.cols / 128, x.scale_stride, x.scale_stride},
                                          1, tile.block_m, 0);
    const float* weight_scales = w.scales();
    auto m = static_cast<uint32_t>(x.rows), num = static_cast<uint32_t>(n),
         k = static_cast<uint32_t>(w.k());
    void* args[] = {&weight_scales,
                    &group_ends,
                    &m,
                    &num,
                    &k,
                    const_cast<CUtensorMap*>(&rows),
                    const_cast<CUtensorMap*>(&weights),
                    const_cast<CUtensorMap*>(&result),
                    const_cast<CUtensorMap*>(&scales)};
    cudaLaunchAttribute attributes[2]{};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {static_cast<unsigned>(tile.multicast), 1, 1};
    attributes[1] = early_launch();  // DeepGEMM's kernels wait as launch.cuh says
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(kFp8Processors);
    config.blockDim = dim3(128 + tile.math_threads);
    config.dynamicSmemBytes = fp8_fixed_bytes(tile.block_m, tile.block_n, static_cast<int>(k)) +
                              tile.num_stages * fp8_stage_bytes(tile.block_m, tile.block_n);
    config.stream = static_cast<cudaStream_t>(stream.queue());
    config.attrs = attributes;
    config.numAttrs = 2;
    CUDA_CHECK(cudaLaunchKernelExC(&config, tile.kernel, args));
}

}  // namespace

size_t Fp8Rows::num_bytes(int64_t rows, int64_t cols) {
    const int64_t padded = round_up(rows, kPadRows);
    return padded * cols + cols / 128 * padded * sizeof(float);
}

Fp8Rows Fp8Rows::at(void* memory, int64_t rows, int64_t cols) {
    auto* values = static_cast<uint8_t*>(memory);
    const int64_t padded = round_up(rows, kPadRows);
    return {values, reinterpret_cast<float*>(values + padded * cols), rows, cols, padded};
}

bool fp8_gemm_serves(int64_t n, int64_t k) {
    return n > 0 && n % 8 == 0 && k > 0 && k % 128 == 0 && k <= kFp8MaxK;
}

// The processor with the most blocks of the result decides.
int fp8_dense_tile(int64_t m, int64_t n, int64_t k) {
    constexpr double kBlockUs = 0.6;  // to begin and end a block
    const std::span<const Fp8Tile> tiles = fp8_dense_tiles();
    int best = 0;
    double least = 0;
    for (size_t i = 0; i < tiles.size(); ++i) {
        const Fp8Tile& t = tiles[i];
        const int64_t blocks = ceil_div(m, t.block_m) * ceil_div(n, t.block_n);
        const double us = static_cast<double>(ceil_div(blocks, kFp8Processors)) *
                          (static_cast<double>(ceil_div(k, 128)) * t.step_us + kBlockUs);
        if (i == 0 || us < least) {
            best = static_cast<int>(i);
            least = us;
        }
    }
    return best;
}

void fp8_gemm_with_tile(Stream& stream, int tile, const Fp8Rows& x, const LinearWeight& w, View y) {
    if (x.rows > 0) launch(stream, fp8_dense_tiles()[tile], x, w, w.n(), nullptr, y);
}

void fp8_gemm(Stream& stream, const Fp8Rows& x, const LinearWeight& w, View y) {
    fp8_gemm_with_tile(stream, fp8_dense_tile(x.rows, w.n(), w.k()), x, w, y);
}

int Fp8Groups::padded_groups(int num_groups) {
    for (const Fp8Tile& t : fp8_grouped_tiles())
        if (num_groups <= t.num_groups) return t.num_groups;
    CHECK(false, "{} groups", num_groups);
}

int Fp8Groups::tile_rows_for(int64_t mean_rows_of_group) {
    return mean_rows_of_group < 64 ? 64 : 128;
}

void fp8_gemm_grouped(Stream& stream, const Fp8Rows& x, const LinearWeight& w,
                      const Fp8Groups& groups, View y) {
    CHECK(w.n() % groups.num_groups == 0 && w.n() / groups.num_groups % 128 == 0 &&
              x.rows % groups.tile_rows == 0,
          "{} rows in tiles of {}, [{}, {}] for {} groups", x.rows, groups.tile_rows, w.n(), w.k(),
          groups.num_groups);
    const int padded = Fp8Groups::padded_groups(groups.num_groups);
    for (const Fp8Tile& t : fp8_grouped_tiles())
        if (t.num_groups == padded && t.block_m == groups.tile_rows)
            return launch(stream, t, x, w, w.n() / groups.num_groups, groups.ends, y);
    CHECK(false, "tiles of {} rows", groups.tile_rows);
}

}  // namespace aerie::kernels::cuda
