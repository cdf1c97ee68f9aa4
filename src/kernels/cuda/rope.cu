#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_io.cuh"

namespace aerie::kernels::cuda {
namespace {

struct Heads {
    int count;
    int pairs;  // of a head
    int64_t x_stride, x_offset, y_stride, y_offset;
};

// One thread for kPairs pairs of a head, next to each other. Products and sums are rounded one by
// one, as on the CPU.
template <int kPairs>
__global__ void rope_kernel(RowsIn x, RowsOut y, const float* table, const int32_t* positions,
                            Heads heads) {
    after_earlier_kernels();
    constexpr int kWidth = kPairs == 1 ? 1 : 2 * kPairs;  // what is read and written at once
    const int i = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * kPairs;
    if (i >= heads.count * heads.pairs) return;
    const int head = i / heads.pairs, pair = i % heads.pairs;
    const int64_t row = blockIdx.x;
    const float* turns = table + (int64_t{positions[row]} * heads.pairs + pair) * 2;
    const int64_t from = head * heads.x_stride + heads.x_offset + 2 * pair;
    const int64_t to = head * heads.y_stride + heads.y_offset + 2 * pair;
    float v[2 * kPairs];
    const auto group = [&](int at) -> float(&)[kWidth] {
        return *reinterpret_cast<float(*)[kWidth]>(v + at);
    };
#pragma unroll
    for (int at = 0; at < 2 * kPairs; at += kWidth) load_group(x, row, from + at, group(at));
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
        const float2 turn = reinterpret_cast<const float2*>(turns)[p];
        const float a = v[2 * p], b = v[2 * p + 1];
        v[2 * p] = __fsub_rn(__fmul_rn(a, turn.x), __fmul_rn(b, turn.y));
        v[2 * p + 1] = __fadd_rn(__fmul_rn(b, turn.x), __fmul_rn(a, turn.y));
    }
#pragma unroll
    for (int at = 0; at < 2 * kPairs; at += kWidth) store_group(y, row, to + at, group(at));
}

// Whether groups of 8 of a head's values lie at multiples of 16 bytes.
bool in_groups_of_heads(ConstView x, int64_t head_stride, int64_t offset) {
    return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.row_stride % 8 == 0 &&
           head_stride % 8 == 0 && offset % 8 == 0;
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
    const bool groups = heads.pairs % 4 == 0 &&
                        in_groups_of_heads(args.x, args.head_stride, args.offset) &&
                        in_groups_of_heads(y, y_head_stride, y_offset);
    const RowGrid grid = row_grid(y.rows, int64_t{heads.count} * heads.pairs, groups ? 4 : 1);
    const auto kernel = groups ? rope_kernel<4> : rope_kernel<1>;
    launch_early(stream, grid.blocks, dim3(grid.threads), kernel, rows_in(args.x), rows_out(y),
                 table.on_card(), args.positions, heads);
}

void rope(Stream& stream, const RopeTable& table, const RopeArgs& args) {
    cuda::rope_to(stream, table, args, args.x, args.head_stride, args.offset);
}

}  // namespace aerie::kernels::cuda
