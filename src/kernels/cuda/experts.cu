#include <algorithm>

#include "kernels/cuda/fp8_ops.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_io.cuh"
#include "kernels/cuda/silu.cuh"
#include "kernels/routed.h"

namespace aerie::kernels {
namespace cuda {
namespace {

constexpr int kThreads = 1024;  // of sort_kernel
constexpr int kMaxTopK = 64;
constexpr size_t kAlign = 256;

// The pairs of a row and one of its experts that is here, sorted by expert: one line each.
struct Lines {
    int32_t* rows = nullptr;        // [lines] row of x
    RoutedLine* choices = nullptr;  // [R, top_k]
    ExpertTile* tiles = nullptr;
    int32_t* totals = nullptr;  // tiles, lines
    int tile_rows = 0;
};

// One block: counts the lines of each expert, lays them and their tiles out, and puts each choice
// on a line. Which line of its expert a choice gets is a matter of chance, and of no consequence.
__global__ void __launch_bounds__(kThreads)
    sort_kernel(const int32_t* ids, const float* weights, int num_choices, int top_k,
                int first_expert, int num_experts, Lines lines) {
    after_earlier_kernels();
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
    const auto is_here = [&](int e) { return 0 <= e && e < num_experts; };
    for (int i = thread; i < num_choices; i += kThreads) {
        const int row = i / top_k, e = ids[i] - first_expert;
        const bool here = is_here(e);
        const int at = here ? atomicAdd(&counts[e], 1) : -1;
        if (here) lines.rows[at] = row;
        int place = 0;
        for (int j = row * top_k; j < (row + 1) * top_k; ++j) {
            const int other = ids[j] - first_expert;
            // Those that are not here may have one number.
            place += is_here(other) == here ? other < e || (other == e && j < i) : !here;
        }
        lines.choices[row * top_k + place] = {at, weights[i]};
    }
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
    parts = {static_cast<std::byte*>(
        stream.card_scratch(Stream::CardScratch::kActivations, parts.used))};
    ffn.place(parts);
    linear(stream, {x, nullptr, &weights.gate_up, ffn.gate_up_view()});
    silu_mul(stream, ffn.gate_up_view(), ffn.product_view());
    linear(stream, {ffn.product_view(), nullptr, &weights.down, out});
}

namespace {

void check_routed(const RoutedArgs& args) {
    const int64_t rows = args.x.rows, hidden = args.x.cols;
    const LinearWeight &gate_up = args.experts->gate_up, &down = args.experts->down;
    CHECK(args.x.dtype == DType::kBF16 && gate_up.k() == hidden &&
              gate_up.n() == args.num_experts * 2 * down.k() &&
              down.n() == args.num_experts * hidden,
          "x [{}, {}] {}, {} experts stacked as [{}, {}] and [{}, {}]", rows, hidden,
          name_of(args.x.dtype), args.num_experts, gate_up.n(), gate_up.k(), down.n(), down.k());
    CHECK(args.num_experts >= 1 && args.num_experts <= kMaxExperts && args.top_k >= 1 &&
              args.top_k <= kMaxTopK && rows * args.top_k < (int64_t{1} << 30),
          "{} experts, {} a token, {} rows", args.num_experts, args.top_k, rows);
}

// Rows and weights as they are, bfloat16 and the storage's type.
RoutedLines bf16_routed_lines(Stream& stream, const RoutedArgs& args) {
    const int64_t num_choices = args.x.rows * args.top_k;
    const LinearWeight &gate_up = args.experts->gate_up, &down = args.experts->down;
    const int64_t inner = down.k(), hidden = args.x.cols;
    Ffn ffn{.lines = num_choices, .inner = inner, .hidden = hidden};
    Lines lines;
    lines.tile_rows = tile_rows_for(args.x.rows, num_choices, args.num_experts);
    const int64_t max_tiles =
        std::min(num_choices, num_choices / lines.tile_rows + args.num_experts);
    Parts parts;
    for (int pass = 0; pass < 2; ++pass) {
        lines.rows = parts.take<int32_t>(num_choices);
        lines.choices = parts.take<RoutedLine>(num_choices);
        lines.tiles = parts.take<ExpertTile>(max_tiles);
        lines.totals = parts.take<int32_t>(2);
        ffn.place(parts);
        ffn.result = parts.take<float>(num_choices * hidden);
        if (pass == 0)
            parts = {static_cast<std::byte*>(
                stream.card_scratch(Stream::CardScratch::kExperts, parts.used))};
    }
    launch_early(stream, dim3(1), dim3(kThreads), sort_kernel, args.ids, args.weights,
                 static_cast<int>(num_choices), args.top_k, args.first_expert, args.num_experts,
                 lines);
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
    return {result, lines.choices, args.top_k};
}

}  // namespace

void routed_ffn(Stream& stream, const RoutedArgs& args) {
    check_float("out", args.out);
    CHECK(args.out.rows == args.x.rows && args.out.cols == args.x.cols, "x [{}, {}], out [{}, {}]",
          args.x.rows, args.x.cols, args.out.rows, args.out.cols);
    if (args.x.rows > 0) combine_lines(stream, routed_lines(stream, args), {}, args.out);
}

}  // namespace cuda

RoutedLines routed_lines(Stream& stream, const RoutedArgs& args) {
    cuda::check_routed(args);
    CHECK(args.x.rows > 0, "no rows");
    return stream.quantises_rows() && cuda::fp8_serves(args)
               ? cuda::fp8_routed_lines(stream, args)
               : cuda::bf16_routed_lines(stream, args);
}

}  // namespace aerie::kernels
