#include "kernels/cuda/fp8_tile.cuh"

namespace aerie::kernels::cuda {

std::span<const Fp8Tile> fp8_dense_tiles() {
    using enum deep_gemm::GemmType;
    static const Fp8Tile tiles[] = {
        fp8_tile<Normal, 64, 16, 1, 1>(0.137f), fp8_tile<Normal, 64, 32, 1, 1>(0.165f),
        fp8_tile<Normal, 64, 64, 1, 1>(0.24f),  fp8_tile<Normal, 64, 128, 1, 1>(0.33f),
        fp8_tile<Normal, 128, 64, 1, 1>(0.31f), fp8_tile<Normal, 128, 128, 2, 1>(0.42f)};
    return tiles;
}

}  // namespace aerie::kernels::cuda
