#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row_io.cuh"

namespace aerie::kernels::cuda {
namespace {

struct Heads {
    int count;
    int pairs;  // of a head
    int64_t x_stride, x_offset, y_stride, y_offset;
};

// Two neighbouring values, at once where kTogether: then they lie at a multiple of their size.
template <bool kTogether>
__device__ float2 load_pair(const RowsIn& x, int64_t row, int64_t col) {
    if constexpr (kTogether) {
        const std::byte* at = x.data + row * x.stride + col * (x.bf16 ? 2 : 4);
        if (x.bf16) return floats_of(*reinterpret_cast<const uint32_t*>(at));
        return *reinterpret_cast<const float2*>(at);
    }
    float a[1], b[1];
    load_group(x, row, col, a);
    load_group(x, row, col + 1, b);
    return {a[0], b[0]};
}
template <bool kTogether>
__device__ void store_pair(const RowsOut& y, int64_t row, int64_t col, float2 v) {
    if constexpr (kTogether) {
        std::byte* at = y.data + row * y.stride + col * (y.bf16 ? 2 : 4);
        if (y.bf16)
            *reinterpret_cast<uint32_t*>(at) = bf16_pair(v.x, v.y);
        else
            *reinterpret_cast<float2*>(at) = v;
        return;
    }
    const float a[1] = {v.x}, b[1] = {v.y};
    store_group(y, row, col, a);
    store_group(y, row, col + 1, b);
}

// One thread a pair. Products and sums are rounded one by one, as on the CPU.
template <bool kTogether>
__global__ void rope_kernel(RowsIn x, RowsOut y, const float2* table, const int32_t* positions,
                            Heads heads) {
    const int i = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
    if (i >= heads.count * heads.pairs) return;
    const int head = i / heads.pairs, pair = i % heads.pairs;
    const int64_t row = blockIdx.x;
    const float2 turn = table[int64_t{positions[row]} * heads.pairs + pair];
    const float2 v =
        load_pair<kTogether>(x, row, head * heads.x_stride + heads.x_offset + 2 * pair);
    store_pair<kTogether>(y, row, head * heads.y_stride + heads.y_offset + 2 * pair,
                          {__fsub_rn(__fmul_rn(v.x, turn.x), __fmul_rn(v.y, turn.y)),
                           __fadd_rn(__fmul_rn(v.y, turn.x), __fmul_rn(v.x, turn.y))});
}

bool even(ConstView x, int64_t head_stride, int64_t offset) {
    return reinterpret_cast<uintptr_t>(x.data) % (2 * size_of(x.dtype)) == 0 &&
           x.row_stride % 2 == 0 && head_stride % 2 == 0 && offset % 2 == 0;
}

}  // namespace

void rope_to(Stream& stream, const RopeTable& table, const RopeArgs& args, View y,
             int64_t y_head_stride, int64_t y_offset) {
    check_float("x", args.x);
    check_float("y", y);
    CHECK(table.on_card() != nullptr, "the rope table was not made for the card");
    CHECK(args.x.rows == y.rows, "{} rows into {}", args.x.rows, y.rows);
    const int64_t last = args.num_heads - 1;
    CHECK(last * args.head_stride + args.offset + table.dim() <= args.x.cols &&
              last * y_head_stride + y_offset + table.dim() <= y.cols,
          "{} heads past the end of a row", args.num_heads);
    if (y.rows == 0) return;
    const Heads heads{args.num_heads, table.dim() / 2, args.head_stride,
                      args.offset,    y_head_stride,   y_offset};
    const RowGrid grid = row_grid(y.rows, int64_t{heads.count} * heads.pairs, 1);
    const bool together =
        even(args.x, args.head_stride, args.offset) && even(y, y_head_stride, y_offset);
    const auto kernel = together ? rope_kernel<true> : rope_kernel<false>;
    kernel<<<grid.blocks, grid.threads, 0, queue_of(stream)>>>(
        rows_in(args.x), rows_out(y), reinterpret_cast<const float2*>(table.on_card()),
        args.positions, heads);
    CUDA_CHECK(cudaGetLastError());
}

void rope(Stream& stream, const RopeTable& table, const RopeArgs& args) {
    cuda::rope_to(stream, table, args, args.x, args.head_stride, args.offset);
}

}  // namespace aerie::kernels::cuda
