#include <cooperative_groups.h>
#include <cuda_fp8.h>

#include <algorithm>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_io.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace aerie::kernels::cuda {
namespace {

// A block computes kBlockN columns of y (rows of W) for one tile of rows of y, over one slice of K.
// W is the tensor cores' left operand, from registers, where FP8 has become bfloat16 on the way, so
// that a tile has as few as 8 rows of y. Each warpgroup has 64 columns, and all rows of the tile.
// The blocks of the slices of K form a cluster and add their results through shared memory.
constexpr int kInFlight = 4;   // products of a warpgroup
constexpr int kMaxSlices = 8;  // of K: what a cluster may have
constexpr int kScaleBlock = 128;
constexpr int kProcessors = 132;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <int kNumTasks>
struct Params {
    GemmTask tasks[kNumTasks];
    int64_t rows, n, k, x_stride, y_stride;
    int64_t slice;  // of K, a multiple of kScaleBlock
    int num_slices;
    bool y_bf16;
    bool y_groups;  // four columns of y can be stored at once
    const int32_t* x_rows;
    const ExpertTile* tiles;  // null: all rows of each task
    const int32_t* num_tiles;
};

// kWide: blocks of 256 columns, for many rows: a value of x is then read half as often.
template <bool kFp8, int kRows, bool kWide>
struct Config {
    static constexpr int kBlockN = kWide ? 256 : 128;
    static constexpr int kThreads = kBlockN / 64 * 128;
    static constexpr int kBlocks = kWide ? 1 : kRows == 8 ? 3 : 2;  // on a multiprocessor
    // W's rows of a stage are 128 bytes, a line of the cache, except where x would be too long.
    static constexpr int kDepth = kFp8 && kRows <= 32 ? 128 : 64;  // of K in a stage
    static constexpr int kWeightSize = kFp8 ? 1 : 2;
    static constexpr int kWeightPitch = kDepth * kWeightSize;  // bytes
    static constexpr int kWeightChunks = kWeightPitch / 16;    // of a row
    static constexpr int kXChunks = kDepth / 8;
    static constexpr int kWeightBytes = kBlockN * kWeightPitch;
    static constexpr int kHalfBytes = kRows * 128;  // x's rows for 64 of K
    static constexpr int kStageBytes = kWeightBytes + kHalfBytes * (kDepth / 64);
    static constexpr int kStages = (kBlocks == 1   ? 200
                                    : kBlocks == 2 ? 104
                                                   : 72) *
                                   1024 / kStageBytes;
    static constexpr int kSumPitch = kBlockN + 4;  // conflict-free, and 16 bytes
    static constexpr int kSumBytes = kRows * kSumPitch * 4;
    static constexpr int kBufferBytes = std::max(kStages * kStageBytes, kSumBytes);
    static_assert(kStages >= 3 && kStageBytes % 1024 == 0);
};

__device__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// 16 bytes to shared memory; zeros where !valid, and nothing is read.
__device__ void copy_async(uint32_t to, const void* from, bool valid) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
}
__device__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Keeps registers from being given to anything else until here: products that are under way read
// them, which the compiler does not know.
__device__ void hold(uint32_t (&a)[4]) {
    asm volatile("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])::"memory");
}

// Two FP8 values (the lower 16 bits) to bf16(value · scale). e4m3 fits float16 exactly.
__device__ uint32_t dequantised(uint32_t two, float scale) {
    const __half2_raw half =
        __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), __NV_E4M3);
    const float2 f = __half22float2(*reinterpret_cast<const __half2*>(&half));
    return bf16_pair(__fmul_rn(f.x, scale), __fmul_rn(f.y, scale));
}

// Where 16-byte chunk c of a row of W lies: eight rows of one chunk are in different banks.
template <typename C>
__device__ int weight_chunk(int row, int c) {
    return C::kWeightChunks == 8 ? c ^ (row & 7) : c ^ (row >> 1 & 3);
}

// This thread's part of the 16 rows of W of its warp, at 16·step of a stage, as it is stored.
template <typename C>
__device__ void load_weights(const std::byte* stage, int step, uint32_t (&raw)[4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if constexpr (C::kWeightSize == 2) {
        const int row = warp * 16 + lane % 16, c = 2 * step + lane / 16;
        asm volatile(
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(raw[0]), "=r"(raw[1]), "=r"(raw[2]), "=r"(raw[3])
            : "r"(shared_address(stage + row * C::kWeightPitch + weight_chunk<C>(row, c) * 16)));
    } else {
        const int row = warp * 16 + lane / 4;  // and 8 below, whose chunks lie alike
        const std::byte* at =
            stage + row * C::kWeightPitch + weight_chunk<C>(row, step) * 16 + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            raw[i] =
                *reinterpret_cast<const uint16_t*>(at + i % 2 * 8 * C::kWeightPitch + i / 2 * 8);
    }
}

// The products of a stage are put on their way; at most kInFlight are when it returns. a: those
// products' weights, which must not be written to before. A stage has at least as many products, so
// that those of the stages before this one are done. With !add sums begin here.
template <typename C, int kRows>
__device__ void multiply_stage(const std::byte* stage, float scale, bool add,
                               uint32_t (&a)[kInFlight][4], float (&sums)[kRows / 2]) {
    const uint32_t x = shared_address(stage + C::kWeightBytes);
    static_assert(C::kDepth / 16 % kInFlight == 0);
#pragma unroll
    for (int first = 0; first < C::kDepth / 16; first += kInFlight) {
        uint32_t raw[kInFlight][4];  // FP8: all before the first product
#pragma unroll
        for (int i = 0; C::kWeightSize == 1 && i < kInFlight; ++i)
            load_weights<C>(stage, first + i, raw[i]);
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
            const int step = first + i;
            wait_for_products<kInFlight - 1>();
            hold(a[i]);
            if constexpr (C::kWeightSize == 2) load_weights<C>(stage, step, a[i]);
#pragma unroll
            for (int j = 0; C::kWeightSize == 1 && j < 4; ++j)
                a[i][j] = dequantised(raw[i][j], scale);
            order_products();
            add_product(sums, a[i], swizzled_operand(x + step / 4 * C::kHalfBytes + step % 4 * 32),
                        step > 0 || add);
            commit_products();
        }
    }
}

// What one block computes.
struct Block {
    int64_t n0;
    int64_t k_begin, k_end;
    const std::byte* x;
    const std::byte* w;  // row n0
    int64_t n_left;      // rows of W from n0
};

// This thread's share of the copies of one stage after the other. It has one place in K, and rows
// that are kThreads / chunks of a row apart, all of which lie alike in shared memory.
template <typename C, int kRows>
class Copies {
  public:
    template <typename Params>
    __device__ Copies(const Params& p, const Block& block, const int32_t* rows, uint32_t stages)
        : stages_(stages) {
        const int w_row = threadIdx.x / C::kWeightChunks, w_chunk = threadIdx.x % C::kWeightChunks;
        const int64_t w_col = block.k_begin + w_chunk * (16 / C::kWeightSize);
        w_ = block.w + (w_row * p.k + w_col) * C::kWeightSize;
        w_step_ = kWeightRows * p.k * C::kWeightSize;
        w_count_ = static_cast<int>(max(
            int64_t{0},
            min(int64_t{kWeightCopies}, (block.n_left - w_row + kWeightRows - 1) / kWeightRows)));
        w_left_ = static_cast<int>(block.k_end - w_col);
        w_to_ = w_row * C::kWeightPitch + weight_chunk<C>(w_row, w_chunk) * 16;
        const int x_row = threadIdx.x / C::kXChunks, x_chunk = threadIdx.x % C::kXChunks;
        const int64_t x_col = block.k_begin + x_chunk * 8;
#pragma unroll
        for (int i = 0; i < kXCopies; ++i) {
            const int row = x_row + i * kXRows;
            const int from = row < kRows ? rows[row] : -1;
            x_[i] = from < 0 ? nullptr : block.x + (from * p.x_stride + x_col) * 2;
        }
        x_left_ = static_cast<int>(block.k_end - x_col);
        x_to_ = C::kWeightBytes + x_chunk / 8 * C::kHalfBytes + x_row * 128 +
                (x_chunk % 8 ^ x_row % 8) * 16;
    }

    // The next stage of K; nothing beyond the slice.
    __device__ void start(int stage) {
        const uint32_t to = stages_ + stage * C::kStageBytes;
#pragma unroll
        for (int i = 0; i < kWeightCopies; ++i)
            copy_async(to + w_to_ + i * kWeightRows * C::kWeightPitch, w_ + i * w_step_,
                       i < w_count_ && w_left_ > 0);
#pragma unroll
        for (int i = 0; i < kXCopies; ++i) {
            if (kRows * C::kXChunks < C::kThreads && threadIdx.x >= kRows * C::kXChunks) break;
            copy_async(to + x_to_ + i * kXRows * 128, x_[i], x_[i] != nullptr && x_left_ > 0);
            if (x_[i] != nullptr) x_[i] += C::kDepth * 2;
        }
        w_ += C::kDepth * C::kWeightSize;
        w_left_ -= C::kDepth;
        x_left_ -= C::kDepth;
    }

  private:
    static constexpr int kWeightCopies = C::kBlockN * C::kWeightChunks / C::kThreads;
    static constexpr int kWeightRows = C::kThreads / C::kWeightChunks;
    static constexpr int kXCopies = (kRows * C::kXChunks + C::kThreads - 1) / C::kThreads;
    static constexpr int kXRows = C::kThreads / C::kXChunks;
    static_assert(kWeightRows % 8 == 0 && kXRows % 8 == 0);

    uint32_t stages_;
    const std::byte* w_;
    const std::byte* x_[kXCopies];  // null: zeros
    int64_t w_step_;                // bytes
    int w_count_, w_left_, x_left_;
    int w_to_, x_to_;
};

template <typename C, int kRows>
__device__ void write_sums(const float (&sums)[kRows / 2], float* shared) {
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i)
#pragma unroll
        for (int c = 0; c < 4; ++c)
            shared[(i * 8 + 2 * t + c % 2) * C::kSumPitch + warp * 16 + c / 2 * 8 + g] =
                sums[i * 4 + c];
}

// Four columns of one row of y.
__device__ void store(std::byte* y, bool bf16, bool together, int64_t n_left, float4 v) {
    if (together && n_left >= 4) {
        if (bf16)
            *reinterpret_cast<uint2*>(y) = {bf16_pair(v.x, v.y), bf16_pair(v.z, v.w)};
        else
            *reinterpret_cast<float4*>(y) = v;
        return;
    }
    const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (i >= n_left) return;
        if (bf16)
            reinterpret_cast<__nv_bfloat16*>(y)[i] = __float2bfloat16_rn(values[i]);
        else
            reinterpret_cast<float*>(y)[i] = values[i];
    }
}

// The sums of this block, and of those of its cluster, to y: each block writes a part.
template <typename C, int kRows, int kNumTasks>
__device__ void add_and_store(const Params<kNumTasks>& p, const Block& block, int slice,
                              int64_t first_row, int num_rows, std::byte* y,
                              const float (&sums)[kRows / 2], float* shared) {
    write_sums<C, kRows>(sums, shared);
    const auto cluster = cooperative_groups::this_cluster();
    if (p.num_slices > 1)
        cluster.sync();
    else
        __syncthreads();
    constexpr int kFours = C::kBlockN / 4;
    const int element = p.y_bf16 ? 2 : 4;
    for (int i = slice * C::kThreads + threadIdx.x; i < num_rows * kFours;
         i += p.num_slices * C::kThreads) {
        const int row = i / kFours, col = i % kFours * 4;
        if (col >= block.n_left) continue;
        float4 parts[kMaxSlices];  // all on their way before the first is added
#pragma unroll
        for (int s = 0; s < kMaxSlices; ++s) {
            if (s >= p.num_slices) break;
            const float* from = p.num_slices > 1 ? cluster.map_shared_rank(shared, s) : shared;
            parts[s] = *reinterpret_cast<const float4*>(from + row * C::kSumPitch + col);
        }
        float4 v = parts[0];
#pragma unroll
        for (int s = 1; s < kMaxSlices; ++s) {
            if (s >= p.num_slices) break;
            v = {v.x + parts[s].x, v.y + parts[s].y, v.z + parts[s].z, v.w + parts[s].w};
        }
        store(y + ((first_row + row) * p.y_stride + block.n0 + col) * element, p.y_bf16, p.y_groups,
              block.n_left - col, v);
    }
    if (p.num_slices > 1) cluster.sync();  // the others may still read this block's sums
}

// Copies of stages run ahead of the products by as many stages as there are, less one that is being
// read and one whose products may not be done.
template <typename C, int kRows, int kNumTasks>
__device__ void multiply_slice(const Params<kNumTasks>& p, const Block& block, const int32_t* rows,
                               const float* scales, std::byte* buffer, float (&sums)[kRows / 2]) {
    constexpr int kAhead = C::kStages - 2;
    const int steps = static_cast<int>((block.k_end - block.k_begin + C::kDepth - 1) / C::kDepth);
    Copies<C, kRows> copies(p, block, rows, shared_address(buffer));
#pragma unroll
    for (int s = 0; s < kAhead; ++s) {
        if (s < steps) copies.start(s);
        commit_copies();
    }
    uint32_t a[kInFlight][4] = {};
    int at = 0, to = kAhead;  // stages
    for (int s = 0; s < steps; ++s) {
        wait_for_copies<kAhead - 1>();
        publish_to_products();
        __syncthreads();  // this stage is there for all, and all are done with that of s − 2
        if (s + kAhead < steps) copies.start(to);
        commit_copies();
        const float scale = C::kWeightSize == 1 ? scales[s * C::kDepth / kScaleBlock] : 1.0f;
        multiply_stage<C, kRows>(buffer + at * C::kStageBytes, scale, s > 0, a, sums);
        at = at == C::kStages - 1 ? 0 : at + 1;
        to = to == C::kStages - 1 ? 0 : to + 1;
    }
    wait_for_products<0>();
    for (auto& weights : a) hold(weights);
    wait_for_copies<0>();
    __syncthreads();
}

// blockIdx: slices of a tile of rows one beside the other, then tiles; kBlockN columns; task.
template <bool kFp8, int kRows, bool kWide, int kNumTasks>
__global__ void __launch_bounds__(Config<kFp8, kRows, kWide>::kThreads,
                                  Config<kFp8, kRows, kWide>::kBlocks)
    gemm_kernel(const __grid_constant__ Params<kNumTasks> p) {
    using C = Config<kFp8, kRows, kWide>;
    after_earlier_kernels();
    extern __shared__ __align__(1024) std::byte buffer[];
    auto* rows = reinterpret_cast<int32_t*>(buffer + C::kBufferBytes);  // of x; −1: none
    auto* scales = reinterpret_cast<float*>(rows + kRows);  // of the slice, for each 128 columns
    const int slice = static_cast<int>(blockIdx.x) % p.num_slices;
    const int tile = static_cast<int>(blockIdx.x) / p.num_slices;
    int64_t first_row = int64_t{tile} * kRows, expert = 0;
    int num_rows = static_cast<int>(min(int64_t{kRows}, p.rows - first_row));
    if (p.tiles != nullptr) {
        if (tile >= *p.num_tiles) return;  // the whole cluster
        const ExpertTile t = p.tiles[tile];
        first_row = t.first_line, num_rows = t.num_lines, expert = t.expert;
    }
    const GemmTask& task = p.tasks[kNumTasks == 1 ? 0 : blockIdx.z];
    Block block;
    block.n0 = int64_t{blockIdx.y} * C::kBlockN;
    block.n_left = p.n - block.n0;
    block.k_begin = slice * p.slice;
    block.k_end = min(p.k, block.k_begin + p.slice);
    block.x = static_cast<const std::byte*>(task.x);
    block.w =
        static_cast<const std::byte*>(task.w) + (expert * p.n + block.n0) * p.k * C::kWeightSize;
    for (int i = threadIdx.x; i < kRows; i += C::kThreads) {
        const int64_t row = first_row + i;
        rows[i] = i >= num_rows ? -1 : p.x_rows != nullptr ? p.x_rows[row] : static_cast<int>(row);
    }
    const int slice_blocks = static_cast<int>(p.slice / kScaleBlock);
    if constexpr (kFp8) {
        const int64_t k_blocks = (p.k + kScaleBlock - 1) / kScaleBlock;
        const float* from = task.scales + (expert * p.n + block.n0) / kScaleBlock * k_blocks;
        for (int i = threadIdx.x; i < C::kBlockN / kScaleBlock * slice_blocks; i += C::kThreads) {
            const int n = i / slice_blocks;
            const int64_t k = block.k_begin / kScaleBlock + i % slice_blocks;
            if (n * kScaleBlock < block.n_left && k < k_blocks) scales[i] = from[n * k_blocks + k];
        }
    }
    __syncthreads();
    float sums[kRows / 2];
    multiply_slice<C, kRows>(p, block, rows, scales + threadIdx.x / 256 * slice_blocks, buffer,
                             sums);
    add_and_store<C, kRows>(p, block, slice, first_row, num_rows, static_cast<std::byte*>(task.y),
                            sums, reinterpret_cast<float*>(buffer));
}

// How many slices K is cut into: as many as give the card's 132 multiprocessors a few blocks of 128
// columns, with at least 256 of K each. `others` is how many such products run beside this one, as
// far as that is known for the weight whatever the step.
int split_of(int64_t n, int64_t k, int64_t others) {
    const int64_t blocks = (n + 127) / 128 * others;
    int split = 1;
    while (split < kMaxSlices && blocks * split < 128 && k / (split * 2) >= 256) split *= 2;
    return split;
}

template <bool kFp8, int kRows, bool kWide, int kNumTasks>
void launch(Stream& stream, const Params<kNumTasks>& p, int64_t num_tiles, int num_tasks) {
    using C = Config<kFp8, kRows, kWide>;
    const auto kernel = gemm_kernel<kFp8, kRows, kWide, kNumTasks>;
    const size_t memory =
        C::kBufferBytes + kRows * 4 +
        static_cast<size_t>(kFp8 ? C::kBlockN / kScaleBlock * p.slice / kScaleBlock * 4 : 0);
    static const bool ready = [&] {
        CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        C::kBufferBytes + 4096));
        CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                        cudaSharedmemCarveoutMaxShared));
        return true;
    }();
    CHECK(ready && memory <= C::kBufferBytes + 4096, "a slice of {} of K", p.slice);
    cudaLaunchAttribute attributes[2]{};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {static_cast<unsigned>(p.num_slices), 1, 1};
    attributes[1] = early_launch();
    cudaLaunchConfig_t config{};
    config.gridDim = {static_cast<unsigned>(num_tiles * p.num_slices),
                      static_cast<unsigned>((p.n + C::kBlockN - 1) / C::kBlockN),
                      static_cast<unsigned>(num_tasks)};
    config.blockDim = {C::kThreads, 1, 1};
    config.dynamicSmemBytes = memory;
    config.stream = queue_of(stream);
    config.attrs = attributes;
    config.numAttrs = 2;
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, p));
}

template <int kNumTasks>
void launch(Stream& stream, const GemmShape& shape, const Params<kNumTasks>& p, int tile_rows,
            int64_t num_tiles, int num_tasks) {
    const auto with_rows = [&](auto rows) {
        if (shape.w_fp8)
            launch<true, rows, false>(stream, p, num_tiles, num_tasks);
        else
            launch<false, rows, false>(stream, p, num_tiles, num_tasks);
    };
    // Blocks of 256 columns read less from the second-level cache, but there must be enough of
    // them.
    if (tile_rows == 128 && p.n % 256 == 0 && p.n / 256 * num_tiles * p.num_slices >= 256) {
        if (shape.w_fp8) return launch<true, 128, true>(stream, p, num_tiles, num_tasks);
        return launch<false, 128, true>(stream, p, num_tiles, num_tasks);
    }
    switch (tile_rows) {
        case 8:
            return with_rows(std::integral_constant<int, 8>{});
        case 16:
            return with_rows(std::integral_constant<int, 16>{});
        case 32:
            return with_rows(std::integral_constant<int, 32>{});
        case 64:
            return with_rows(std::integral_constant<int, 64>{});
        default:
            return with_rows(std::integral_constant<int, 128>{});
    }
}

template <int kNumTasks>
Params<kNumTasks> params_of(const GemmShape& shape, std::span<const GemmTask> tasks,
                            int64_t others) {
    CHECK(shape.k % (shape.w_fp8 ? 16 : 8) == 0,
          "K = {} of a {} weight, which must be a multiple of {}", shape.k,
          shape.w_fp8 ? "float8_e4m3" : "bfloat16", shape.w_fp8 ? 16 : 8);
    Params<kNumTasks> p{};
    std::copy(tasks.begin(), tasks.end(), p.tasks);
    p.rows = shape.rows, p.n = shape.n, p.k = shape.k;
    p.x_stride = shape.x_stride, p.y_stride = shape.y_stride;
    const int split = split_of(shape.n, shape.k, others);
    const int64_t k_blocks = (shape.k + kScaleBlock - 1) / kScaleBlock;
    p.slice = (k_blocks + split - 1) / split * kScaleBlock;
    p.num_slices = static_cast<int>((shape.k + p.slice - 1) / p.slice);  // none is empty
    p.y_bf16 = shape.y_bf16;
    const uintptr_t y_unit = shape.y_bf16 ? 8 : 16;
    p.y_groups = shape.y_stride % 4 == 0;
    for (const GemmTask& t : tasks) {
        CHECK(reinterpret_cast<uintptr_t>(t.x) % 16 == 0 && shape.x_stride % 8 == 0,
              "x at {}, its rows {} apart: not multiples of 16 bytes", t.x, shape.x_stride);
        p.y_groups = p.y_groups && reinterpret_cast<uintptr_t>(t.y) % y_unit == 0;
    }
    return p;
}

}  // namespace

void gemm(Stream& stream, const GemmShape& shape, std::span<const GemmTask> tasks,
          const int32_t* x_rows) {
    CHECK(!tasks.empty() && tasks.size() <= kMaxGemmTasks, "{} tasks", tasks.size());
    if (shape.rows == 0) return;
    int tile_rows = kTileRows[0];
    for (int rows : kTileRows)
        if (tile_rows < shape.rows) tile_rows = rows;
    if (tasks.size() == 1) {
        auto p = params_of<1>(shape, tasks, 1);
        p.x_rows = x_rows;
        // Smaller tiles where blocks are few: the router's.
        const int64_t blocks = (shape.n + 127) / 128 * p.num_slices;
        while (tile_rows > 32 && blocks * ceil_div(shape.rows, tile_rows / 2) <= kProcessors)
            tile_rows /= 2;
        const int64_t num_tiles = ceil_div(shape.rows, tile_rows);
        launch(stream, shape, p, tile_rows, num_tiles, 1);
    } else {
        const auto p = params_of<kMaxGemmTasks>(shape, tasks, static_cast<int64_t>(tasks.size()));
        const int64_t num_tiles = ceil_div(shape.rows, tile_rows);
        launch(stream, shape, p, tile_rows, num_tiles, static_cast<int>(tasks.size()));
    }
}

void gemm_by_expert(Stream& stream, const GemmShape& shape, const GemmTask& task,
                    const ExpertTiles& tiles) {
    CHECK(!shape.w_fp8 || shape.n % kScaleBlock == 0, "experts of {} rows share a scale", shape.n);
    if (tiles.max_tiles == 0) return;
    auto p = params_of<1>(shape, {&task, 1}, 8);
    p.x_rows = tiles.x_rows;
    p.tiles = tiles.tiles;
    p.num_tiles = tiles.num_tiles;
    launch(stream, shape, p, tiles.tile_rows, tiles.max_tiles, 1);
}

}  // namespace aerie::kernels::cuda
