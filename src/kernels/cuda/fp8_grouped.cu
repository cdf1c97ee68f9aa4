#include "kernels/cuda/fp8_tile.cuh"

namespace aerie::kernels::cuda {

// A kernel goes through its number of groups, of which those after the last expert are empty: 256
// for a few would cost microseconds.
std::span<const Fp8Tile> fp8_grouped_tiles() {
    using enum deep_gemm::GemmType;
    static const Fp8Tile tiles[] = {fp8_tile<MGroupedContiguousWithPsumLayout, 64, 128, 1, 32>(),
                                    fp8_tile<MGroupedContiguousWithPsumLayout, 128, 128, 2, 32>(),
                                    fp8_tile<MGroupedContiguousWithPsumLayout, 64, 128, 1, 256>(),
                                    fp8_tile<MGroupedContiguousWithPsumLayout, 128, 128, 2, 256>()};
    return tiles;
}

}  // namespace aerie::kernels::cuda
