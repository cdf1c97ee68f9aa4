#include "kernels/cuda/expanded.h"
#include "kernels/cuda/row_io.cuh"

namespace aerie::kernels::cuda {
namespace {

constexpr int kWarps = 8;

// A warp for each token; units of 16 bytes.
__global__ void gather_kernel(const uint4* pool, int page_size, const ExpandPlan::Segment* segments,
                              int num_segments, const int32_t* page_table, uint4* out,
                              int num_tokens, int units) {
    const int token = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
    if (token >= num_tokens) return;
    int low = 0;  // the last segment that begins at or before the token
    for (int high = num_segments; high - low > 1;) {
        const int middle = (low + high) / 2;
        (segments[middle].begin <= token ? low : high) = middle;
    }
    const ExpandPlan::Segment s = segments[low];
    const int position = s.position + token - s.begin;
    const int64_t slot =
        int64_t{page_table[s.pages + position / page_size]} * page_size + position % page_size;
    for (int i = threadIdx.x % 32; i < units; i += 32)
        out[int64_t{token} * units + i] = pool[slot * units + i];
}

// 16 threads for each row and head, 8 columns each.
__global__ void join_kernel(RowsOut out, float* lse, RowsIn other, const float* other_lse,
                            int num_heads) {
    const int64_t row = blockIdx.x;
    const int head = static_cast<int>(blockIdx.y * (blockDim.x / 16) + threadIdx.x / 16);
    const int64_t at = row * num_heads + min(head, num_heads - 1);
    const float a = lse[at], b = other_lse[at];
    __syncwarp();  // before one of them writes
    if (head >= num_heads) return;
    const float highest = fmaxf(a, b), of_a = exp2f(a - highest), of_b = exp2f(b - highest);
    const float sum = of_a + of_b, factor_a = of_a / sum, factor_b = of_b / sum;
    const int64_t col = head * 128 + threadIdx.x % 16 * 8;
    float x[8], y[8];
    load_group({out.data, out.stride, out.bf16}, row, col, x);
    load_group(other, row, col, y);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = x[i] * factor_a + y[i] * factor_b;
    store_group(out, row, col, x);
    if (threadIdx.x % 16 == 0) lse[at] = highest + log2f(sum);
}

}  // namespace

void gather_latents(Stream& stream, const GatherLatents& a) {
    const View& out = a.out;
    CHECK(out.dtype == DType::kBF16 && out.cols % 8 == 0 && out.contiguous() && a.num_segments > 0,
          "[{}, {}] of {}, {} segments", out.rows, out.cols, name_of(out.dtype), a.num_segments);
    const auto blocks = static_cast<unsigned>((out.rows + kWarps - 1) / kWarps);
    gather_kernel<<<blocks, kWarps * 32, 0, queue_of(stream)>>>(
        static_cast<const uint4*>(a.kv_layer), a.page_size, a.segments, a.num_segments,
        a.page_table, reinterpret_cast<uint4*>(out.data), static_cast<int>(out.rows),
        static_cast<int>(out.cols / 8));
    CUDA_CHECK(cudaGetLastError());
}

void join_results(Stream& stream, const JoinResults& a) {
    CHECK(in_groups(a.out, a.other) && a.out.rows == a.other.rows && a.out.cols == a.other.cols &&
              a.out.cols == int64_t{a.heads} * 128,
          "[{}, {}] and [{}, {}], {} heads", a.out.rows, a.out.cols, a.other.rows, a.other.cols,
          a.heads);
    const int threads = std::min(256, (a.heads * 16 + 31) / 32 * 32), heads = threads / 16;
    const dim3 blocks(static_cast<unsigned>(a.out.rows),
                      static_cast<unsigned>((a.heads + heads - 1) / heads));
    join_kernel<<<blocks, threads, 0, queue_of(stream)>>>(rows_out(a.out), a.lse, rows_in(a.other),
                                                          a.other_lse, a.heads);
    CUDA_CHECK(cudaGetLastError());
}

}  // namespace aerie::kernels::cuda
