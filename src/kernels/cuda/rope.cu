#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row_io.cuh"

namespace aerie::kernels::cuda {
namespace {

struct Heads {
    int count;
    int pairs;  // of a head
    int64_t x_stride, x_offset, y_stride, y_offset;
};

// One thread a pair. Products and sums are rounded one by one, as on the CPU.
__global__ void rope_kernel(RowsIn x, RowsOut y, const float2* table, const int32_t* positions,
                            Heads heads) {
    const int i = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
    if (i >= heads.count * heads.pairs) return;
    const int head = i / heads.pairs, pair = i % heads.pairs;
    const int64_t row = blockIdx.x;
    const float2 turn = table[int64_t{positions[row]} * heads.pairs + pair];
    const int64_t from = head * heads.x_stride + heads.x_offset + 2 * pair;
    const int64_t to = head * heads.y_stride + heads.y_offset + 2 * pair;
    float a[1], b[1];
    load_group(x, row, from, a);
    load_group(x, row, from + 1, b);
    const float first[1] = {__fsub_rn(__fmul_rn(a[0], turn.x), __fmul_rn(b[0], turn.y))};
    const float second[1] = {__fadd_rn(__fmul_rn(b[0], turn.x), __fmul_rn(a[0], turn.y))};
    store_group(y, row, to, first);
    store_group(y, row, to + 1, second);
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
    rope_kernel<<<grid.blocks, grid.threads, 0, queue_of(stream)>>>(
        rows_in(args.x), rows_out(y), reinterpret_cast<const float2*>(table.on_card()),
        args.positions, heads);
    CUDA_CHECK(cudaGetLastError());
}

void rope(Stream& stream, const RopeTable& table, const RopeArgs& args) {
    cuda::rope_to(stream, table, args, args.x, args.head_stride, args.offset);
}

}  // namespace aerie::kernels::cuda
