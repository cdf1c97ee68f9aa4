// The instances of DeepGEMM's FP8 kernel that aerie is built with. Each serves every N and K
// (fp8_gemm.h); they differ in the part of the result that a thread block makes at a time.
#pragma once

#include <span>

namespace aerie::kernels::cuda {

struct Fp8Tile {
    int block_m = 0;
    int block_n = 0;
    int num_stages = 0;    // of the pipeline that loads
    int math_threads = 0;  // beside 128 that load
    int multicast = 1;     // thread blocks that load one operand together
    int num_groups = 1;
    float step_us = 0.0f;  // a block of the result and 128 of K, measured on an H200
    const void* kernel = nullptr;
};

inline constexpr int kFp8Processors = 132;  // thread blocks of each launch, whatever the card has
inline constexpr int kFp8MaxK = 18432;      // so much of K fits the shared memory kept for scales
inline constexpr int kFp8SharedMemory = 232448;

constexpr int fp8_round_up(int n, int to) { return (n + to - 1) / to * to; }
// Shared memory: the result, barriers, the weights' scales, and for each stage the operands and the
// rows' scales.
constexpr int fp8_fixed_bytes(int block_m, int block_n, int k) {
    return fp8_round_up(block_m * block_n * 2, 1024) + 256 + fp8_round_up(k / 128 * 4, 8);
}
constexpr int fp8_stage_bytes(int block_m, int block_n) {
    return (block_m + block_n) * 128 + fp8_round_up(block_m * 4, 128);
}
constexpr int fp8_num_stages(int block_m, int block_n) {
    const int fit = (kFp8SharedMemory - fp8_fixed_bytes(block_m, block_n, kFp8MaxK)) /
                    fp8_stage_bytes(block_m, block_n);
    return fit > 16 ? 16 : fit;
}
constexpr int fp8_swizzle(int block_n) { return block_n * 2 >= 128 ? 128 : block_n * 2; }

std::span<const Fp8Tile> fp8_dense_tiles();
std::span<const Fp8Tile> fp8_grouped_tiles();

}  // namespace aerie::kernels::cuda
