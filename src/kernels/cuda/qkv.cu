#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/qkv.h"

namespace aerie::kernels::cuda {
namespace {

constexpr int kWidth = 8;
constexpr int kRopeThreads = 32;

// Columns that some threads of a block norm.
struct Part {
    int64_t begin = 0;  // first column
    int64_t cols = 0;
    const float* weight = nullptr;
    int num_threads = 0;
};

// A block a row: threads for the query, for the latent, and a warp for k_pe. Each part's sums are
// those of norm.cu, and the pairs are turned as in rope.cu.
__global__ void __launch_bounds__(kNormThreads)
    finish_kernel(RowsOut qkv, const __grid_constant__ Part query,
                  const __grid_constant__ Part latent, float eps, const float2* turns, int pairs,
                  const int32_t* positions, std::byte* pool, int64_t pool_row_bytes,
                  const int64_t* slots) {
    after_earlier_kernels();
    __shared__ float sums[2][32];
    const int64_t row = blockIdx.x;
    const auto thread = static_cast<int>(threadIdx.x);
    const RowsIn from{qkv.data, qkv.stride, true};
    const int64_t slot = slots[row];
    // The pool's row has latent and k_pe as qkv has them, from latent.begin on.
    const RowsOut kv{pool + slot * pool_row_bytes - latent.begin * 2, 0, true};
    const bool of_query = thread < query.num_threads;
    const bool of_latent = !of_query && thread < query.num_threads + latent.num_threads;
    const Part& part = of_query ? query : latent;
    const int mine = of_query ? thread : thread - query.num_threads;
    const int64_t begin = int64_t{mine} * kWidth, step = int64_t{part.num_threads} * kWidth;
    float squares[1] = {};
    if (of_query || of_latent) {
        for (int64_t col = begin; col < part.cols; col += step) {
            float v[kWidth];
            load_group(from, row, part.begin + col, v);
#pragma unroll
            for (int i = 0; i < kWidth; ++i) squares[0] = __fmaf_rn(v[i], v[i], squares[0]);
        }
    } else {
        for (int pair = mine - latent.num_threads; pair < pairs; pair += kRopeThreads) {
            const int64_t col = latent.begin + latent.cols + 2 * pair;
            auto* at = reinterpret_cast<uint32_t*>(qkv.data + row * qkv.stride + col * 2);
            const float2 turn = turns[int64_t{positions[row]} * pairs + pair], v = floats_of(*at);
            const uint32_t turned =
                bf16_pair(__fsub_rn(__fmul_rn(v.x, turn.x), __fmul_rn(v.y, turn.y)),
                          __fadd_rn(__fmul_rn(v.y, turn.x), __fmul_rn(v.x, turn.y)));
            *at = turned;
            if (slot >= 0) *reinterpret_cast<uint32_t*>(kv.data + col * 2) = turned;
        }
    }
    // The warp of k_pe takes part with sums that nobody reads.
    __shared__ float unused[32];
    const bool norms = of_query || of_latent;
    const float factor =
        norm_factor(squares, part.cols, eps, norms ? mine : thread % 32, part.num_threads,
                    of_query    ? sums[0]
                    : of_latent ? sums[1]
                                : unused);
    if (!norms) return;
    const RowsIn weights{reinterpret_cast<const std::byte*>(part.weight), 0, false};
    for (int64_t col = begin; col < part.cols; col += step) {
        float w[kWidth], v[kWidth];
        load_group(weights, 0, col, w);
        load_group(from, row, part.begin + col, v);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) v[i] = v[i] * factor * w[i];
        store_group(qkv, row, part.begin + col, v);
        if (of_latent && slot >= 0) store_group(kv, 0, part.begin + col, v);
    }
}

int threads_of(int64_t cols) { return row_grid(1, cols, kWidth, kNormThreads).threads; }

}  // namespace

bool finishes_qkv(const RopeTable& table, const QkvArgs& a) {
    const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
    const int64_t latent_dim = a.pool.width - table.dim();
    if (latent_dim <= 0 || latent_dim % kWidth != 0 || table.dim() % kWidth != 0) return false;
    const int threads = (a.query_norm == nullptr ? 0 : threads_of(a.query_width)) +
                        threads_of(latent_dim) + kRopeThreads;
    return a.qkv.dtype == DType::kBF16 && a.pool.dtype == DType::kBF16 && in_groups(a.qkv) &&
           a.query_width % kWidth == 0 && aligned(a.pool.layer) && aligned(a.query_norm) &&
           aligned(a.latent_norm) && threads <= kNormThreads;
}

void finish_qkv(Stream& stream, const RopeTable& table, const QkvArgs& a) {
    CHECK(table.on_card() != nullptr, "the rope table was not made for the card");
    CHECK(a.qkv.cols == a.query_width + a.pool.width, "rows of {}, a query of {}, a pool of {}",
          a.qkv.cols, a.query_width, a.pool.width);
    if (a.qkv.rows == 0) return;
    const int64_t latent_dim = a.pool.width - table.dim();
    Part query, latent{a.query_width, latent_dim, a.latent_norm, threads_of(latent_dim)};
    if (a.query_norm != nullptr)
        query = {0, a.query_width, a.query_norm, threads_of(a.query_width)};
    launch_early(stream, dim3(static_cast<unsigned>(a.qkv.rows)),
                 dim3(query.num_threads + latent.num_threads + kRopeThreads), finish_kernel,
                 rows_out(a.qkv), query, latent, a.eps,
                 reinterpret_cast<const float2*>(table.on_card()), table.dim() / 2, a.positions,
                 static_cast<std::byte*>(a.pool.layer), int64_t{a.pool.width} * 2, a.slots);
}

}  // namespace aerie::kernels::cuda
