#include <algorithm>

#include "kernels/cuda/fp8_ops.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row_io.cuh"
#include "kernels/cuda/silu.cuh"

namespace aerie::kernels::cuda {
namespace {

constexpr int kThreads = 1024;  // of sort_kernel
constexpr int kMaxTopK = 64;
constexpr size_t kAlign = 256;

// The pairs of a row and one of its experts that is here, sorted by expert: one line each.
struct Lines {
    int32_t* rows = nullptr;       // [lines] row of x
    int32_t* of_choice = nullptr;  // [R, top_k] line; −1: the expert is not here
    ExpertTile* tiles = nullptr;
    int32_t* totals = nullptr;  // tiles, lines
    int tile_rows = 0;
};

// One block: counts the lines of each expert, lays them and their tiles out, and puts each choice
// on a line. Which line of its expert a choice gets is a matter of chance, and of no consequence.
__global__ void __launch_bounds__(kThreads)
    sort_kernel(const int32_t* ids, int num_choices, int top_k, int first_expert, int num_experts,
                Lines lines) {
    __shared__ int32_t counts[kMaxExperts];
    __shared__ int32_t line_sums[32], tile_sums[32];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    static_assert(kThreads == kMaxExperts);
    counts[thread] = 0;
    __syncthreads();
    for (int i = thread; i < num_choices; i += kThreads) {
        const int e = ids[i] - first_expert;
        if (0 <= e && e < num_experts) atomicAdd(&counts[e], 1);
    }
    __syncthreads();
    // Thread e has expert e: sums of those before it.
    const int count = counts[thread], tiles = (count + lines.tile_rows - 1) / lines.tile_rows;
    int line = count, tile = tiles;
    for (int step = 1; step < 32; step *= 2) {
        const int more_lines = __shfl_up_sync(~0u, line, step);
        const int more_tiles = __shfl_up_sync(~0u, tile, step);
        if (lane >= step) line += more_lines, tile += more_tiles;
    }
    if (lane == 31) line_sums[warp] = line, tile_sums[warp] = tile;
    __syncthreads();
    line -= count, tile -= tiles;
    for (int w = 0; w < warp; ++w) line += line_sums[w], tile += tile_sums[w];
    for (int i = 0; i < tiles; ++i)
        lines.tiles[tile + i] = {thread, line + i * lines.tile_rows,
                                 min(lines.tile_rows, count - i * lines.tile_rows)};
    if (thread == kThreads - 1) lines.totals[0] = tile + tiles, lines.totals[1] = line + count;
    counts[thread] = line;
    __syncthreads();
    for (int i = thread; i < num_choices; i += kThreads) {
        const int e = ids[i] - first_expert;
        const bool here = 0 <= e && e < num_experts;
        const int at = here ? atomicAdd(&counts[e], 1) : -1;
        if (here) lines.rows[at] = i / top_k;
        lines.of_choice[i] = at;
    }
}

// out[r] = Σ weight · result[line] in ascending expert, fp32, rounded once.
template <int kWidth>
__global__ void combine_kernel(RowsIn result, const int32_t* ids, const float* weights,
                               const int32_t* of_choice, int top_k, RowsOut out, int64_t cols) {
    __shared__ int32_t lines[kMaxTopK];
    __shared__ float factors[kMaxTopK];
    __shared__ int count;
    const int64_t first = int64_t{blockIdx.x} * top_k;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < top_k; i += blockDim.x) {
        if (of_choice[first + i] < 0) continue;
        int place = 0;  // of this choice among those that are here
        for (int j = 0; j < top_k; ++j)
            if (of_choice[first + j] >= 0 && ids[first + j] < ids[first + i]) ++place;
        lines[place] = of_choice[first + i];
        factors[place] = weights[first + i];
        atomicAdd(&count, 1);
    }
    __syncthreads();
    const int64_t col = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kWidth;
    if (col >= cols) return;
    float total[kWidth] = {};
    for (int i = 0; i < count; ++i) {
        float v[kWidth];
        load_group(result, lines[i], col, v);
#pragma unroll
        for (int j = 0; j < kWidth; ++j)
            total[j] = __fadd_rn(total[j], __fmul_rn(factors[i], v[j]));
    }
    store_group(out, blockIdx.x, col, total);
}

// Hands out parts of one piece of memory; with null only counts.
struct Parts {
    std::byte* memory = nullptr;
    size_t used = 0;

    template <typename T>
    T* take(int64_t count) {
        T* part = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory + used);
        used += (static_cast<size_t>(count) * sizeof(T) + kAlign - 1) / kAlign * kAlign;
        return part;
    }
};

// A tile for the rows that an expert has on average and half as many again.
int tile_rows_for(int64_t rows, int64_t lines, int num_experts) {
    const int64_t wanted = std::min(rows, lines * 3 / (num_experts * 2) + 1);
    int tile = kTileRows[0];
    for (int t : kTileRows)
        if (tile < wanted) tile = t;
    return tile;
}

struct Ffn {
    int64_t lines, inner, hidden;
    BF16 *gate_up, *product;
    float* result;

    void place(Parts& parts) {
        gate_up = parts.take<BF16>(lines * 2 * inner);
        product = parts.take<BF16>(lines * inner);
    }
    View gate_up_view() const {
        return {static_cast<void*>(gate_up), DType::kBF16, lines, 2 * inner};
    }
    View product_view() const { return {static_cast<void*>(product), DType::kBF16, lines, inner}; }
};

GemmShape shape_of(const LinearWeight& w, int64_t n, ConstView x, View y) {
    return {.rows = y.rows,
            .n = n,
            .k = w.k(),
            .x_stride = x.row_stride,
            .y_stride = y.row_stride,
            .w_fp8 = w.storage() == DType::kF8E4M3,
            .y_bf16 = y.dtype == DType::kBF16};
}

}  // namespace

void dense_ffn(Stream& stream, ConstView x, const ExpertWeights& weights, View out) {
    Ffn ffn{.lines = x.rows, .inner = weights.down.k(), .hidden = x.cols};
    if (x.rows == 0) return;
    if (stream.quantises_rows() && fp8_serves(x, weights, out))
        return fp8_dense_ffn(stream, x, weights, out);
    Parts parts;
    ffn.place(parts);
    parts = {
        static_cast<std::byte*>(stream.card_scratch(Stream::CardScratch::kExperts, parts.used))};
    ffn.place(parts);
    linear(stream, {x, nullptr, &weights.gate_up, ffn.gate_up_view()});
    silu_mul(stream, ffn.gate_up_view(), ffn.product_view());
    linear(stream, {ffn.product_view(), nullptr, &weights.down, out});
}

void routed_ffn(Stream& stream, const RoutedArgs& args) {
    const int64_t rows = args.x.rows, num_choices = rows * args.top_k;
    const LinearWeight &gate_up = args.experts->gate_up, &down = args.experts->down;
    const int64_t inner = down.k(), hidden = args.x.cols;
    CHECK(args.x.dtype == DType::kBF16 && gate_up.k() == hidden &&
              gate_up.n() == args.num_experts * 2 * inner && down.n() == args.num_experts * hidden,
          "x [{}, {}] {}, {} experts stacked as [{}, {}] and [{}, {}]", rows, hidden,
          name_of(args.x.dtype), args.num_experts, gate_up.n(), gate_up.k(), down.n(), down.k());
    check_float("out", args.out);
    CHECK(args.out.rows == rows && args.out.cols == hidden, "x [{}, {}], out [{}, {}]", rows,
          hidden, args.out.rows, args.out.cols);
    CHECK(args.num_experts >= 1 && args.num_experts <= kMaxExperts && args.top_k >= 1 &&
              args.top_k <= kMaxTopK && num_choices < (int64_t{1} << 30),
          "{} experts, {} a token, {} rows", args.num_experts, args.top_k, rows);
    if (rows == 0) return;
    if (stream.quantises_rows() && fp8_serves(args)) return fp8_routed_ffn(stream, args);

    Ffn ffn{.lines = num_choices, .inner = inner, .hidden = hidden};
    Lines lines;
    lines.tile_rows = tile_rows_for(rows, num_choices, args.num_experts);
    const int64_t max_tiles =
        std::min(num_choices, num_choices / lines.tile_rows + args.num_experts);
    Parts parts;
    for (int pass = 0; pass < 2; ++pass) {
        lines.rows = parts.take<int32_t>(num_choices);
        lines.of_choice = parts.take<int32_t>(num_choices);
        lines.tiles = parts.take<ExpertTile>(max_tiles);
        lines.totals = parts.take<int32_t>(2);
        ffn.place(parts);
        ffn.result = parts.take<float>(num_choices * hidden);
        if (pass == 0)
            parts = {static_cast<std::byte*>(
                stream.card_scratch(Stream::CardScratch::kExperts, parts.used))};
    }
    const cudaStream_t queue = queue_of(stream);
    sort_kernel<<<1, kThreads, 0, queue>>>(args.ids, static_cast<int>(num_choices), args.top_k,
                                           args.first_expert, args.num_experts, lines);
    CUDA_CHECK(cudaGetLastError());
    const View result{static_cast<void*>(ffn.result), DType::kF32, num_choices, hidden};
    ExpertTiles tiles{.tiles = lines.tiles,
                      .num_tiles = lines.totals,
                      .max_tiles = max_tiles,
                      .tile_rows = lines.tile_rows,
                      .x_rows = lines.rows};
    gemm_by_expert(stream, shape_of(gate_up, 2 * inner, args.x, ffn.gate_up_view()),
                   {args.x.data, gate_up.data(), gate_up.scales(), ffn.gate_up}, tiles);
    launch_silu_mul(stream, ffn.gate_up_view(), ffn.product_view(), lines.totals + 1);
    tiles.x_rows = nullptr;
    gemm_by_expert(stream, shape_of(down, hidden, ffn.product_view(), result),
                   {ffn.product, down.data(), down.scales(), ffn.result}, tiles);
    with_width(in_groups(result, args.out), [&](auto width) {
        const RowGrid grid = row_grid(rows, hidden, width);
        combine_kernel<width><<<grid.blocks, grid.threads, 0, queue>>>(
            rows_in(result), args.ids, args.weights, lines.of_choice, args.top_k,
            rows_out(args.out), hidden);
    });
    CUDA_CHECK(cudaGetLastError());
}

}  // namespace aerie::kernels::cuda
