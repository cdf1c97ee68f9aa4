// The routed experts with FP8 weights: rows are copied, quantised, to where their experts' rows lie
// one after the other, go through two grouped products, and are weighed and added up again.
#include <algorithm>

#include "kernels/cuda/fp8_gemm.h"
#include "kernels/cuda/fp8_ops.h"
#include "kernels/cuda/fp8_quantise.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_io.cuh"
#include "tensor/cuda/check.h"

namespace aerie::kernels::cuda {
namespace {

constexpr int kMaxExperts = 256, kMaxChoices = 32;
constexpr int kPlaceThreads = 1024, kThreads = 128;
constexpr int kBatch = 8;  // choices that a thread looks up before it goes on

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Gives each choice of an expert of ours a slot, -1 to the others, and says where each expert's
// slots end. One block; the order within an expert is any, as no row's result depends on it.
__global__ void __launch_bounds__(kPlaceThreads)
    place(const int32_t* ids, int num_choices, int first_expert, int num_experts, int tile_rows,
          int padded_experts, int32_t* slots, int32_t* ends) {
    after_earlier_kernels();
    __shared__ int count[kMaxExperts], begin[kMaxExperts], sums[kMaxExperts / 32];
    const int t = threadIdx.x;
    if (t < kMaxExperts) count[t] = 0;
    __syncthreads();
    // Several choices a thread at a time: what takes time is to wait for them.
    for (int base = t; base < num_choices; base += kPlaceThreads * kBatch) {
        int expert[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            const int i = base + j * kPlaceThreads;
            expert[j] = i < num_choices ? ids[i] - first_expert : -1;
        }
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            const int i = base + j * kPlaceThreads;
            const bool ours = expert[j] >= 0 && expert[j] < num_experts;
            if (i < num_choices) slots[i] = ours ? atomicAdd(&count[expert[j]], 1) : -1;
        }
    }
    __syncthreads();
    if (t < kMaxExperts) {
        const int length = (count[t] + tile_rows - 1) / tile_rows * tile_rows;
        int sum = length;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const int before = __shfl_up_sync(~0u, sum, distance);
            if (t % 32 >= distance) sum += before;
        }
        if (t % 32 == 31) sums[t / 32] = sum;
        begin[t] = sum - length;
    }
    __syncthreads();
    if (t < kMaxExperts) {
        for (int warp = 0; warp < t / 32; ++warp) begin[t] += sums[warp];
        if (t < padded_experts) ends[t] = begin[t] + count[t];
    }
    __syncthreads();
    for (int base = t; base < num_choices; base += kPlaceThreads * kBatch) {
        int expert[kBatch], slot[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            const int i = base + j * kPlaceThreads;
            slot[j] = i < num_choices ? slots[i] : -1;
            expert[j] = i < num_choices ? ids[i] - first_expert : 0;
        }
#pragma unroll
        for (int j = 0; j < kBatch; ++j)
            if (slot[j] >= 0) slots[base + j * kPlaceThreads] = slot[j] + begin[expert[j]];
    }
}

// The rows of blocks of the two kernels below: each block takes kThreads · kColumns columns.
// Threads past the last column repeat its group's, as all lanes take part in quantise().
__device__ inline int column_of_thread() {
    return static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * kColumns;
}

// Each row to all its slots. Also puts the row's slots in the order of their experts, those that
// are not ours last, as -1, and their weights beside them.
__global__ void __launch_bounds__(kThreads)
    quantise_to_slots(const __nv_bfloat16* x, int64_t row_stride, int top_k, const int32_t* ids,
                      const float* weights, const int32_t* slots, Fp8Rows out, RoutedLine* sorted) {
    after_earlier_kernels();
    const int64_t row = blockIdx.x, first = row * top_k;
    const int column = column_of_thread(), cols = static_cast<int>(out.cols);
    const Quantised q =
        quantise(Columns::load(x + row * row_stride + min(column, cols - 128 + column % 128)));
    for (int base = 0; base < top_k; base += kBatch) {
        int slot[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) slot[j] = base + j < top_k ? slots[first + base + j] : -1;
#pragma unroll
        for (int j = 0; j < kBatch; ++j)
            if (slot[j] >= 0 && column < cols) q.store(out, slot[j], column);
    }
    if (blockIdx.y > 0 || static_cast<int>(threadIdx.x) >= top_k) return;
    const int mine = threadIdx.x;
    const bool ours = slots[first + mine] >= 0;
    int rank = 0;
    for (int other = 0; other < top_k; ++other) {
        const bool other_ours = slots[first + other] >= 0;
        const bool before =
            ours == other_ours ? ids[first + other] < ids[first + mine] : other_ours;
        if (before) ++rank;
    }
    sorted[first + rank] = {slots[first + mine], weights[first + mine]};
}

// The slot of one choice a row of blocks.
__global__ void __launch_bounds__(kThreads)
    silu_mul_of_slots(const __nv_bfloat16* gate_up, const int32_t* slots, Fp8Rows out) {
    after_earlier_kernels();
    const int64_t slot = slots[blockIdx.x];
    if (slot < 0) return;
    const int column = column_of_thread(), cols = static_cast<int>(out.cols);
    const __nv_bfloat16* from = gate_up + slot * 2 * cols + min(column, cols - 128 + column % 128);
    const Quantised q = quantise(silu_mul(Columns::load(from), Columns::load(from + cols)));
    if (column < cols) q.store(out, slot, column);
}

dim3 grid_of(int64_t rows, int64_t cols, int columns_of_block) {
    return dim3(static_cast<unsigned>(rows),
                static_cast<unsigned>((cols + columns_of_block - 1) / columns_of_block));
}

// One call's memory: the results of the second product lie where the first one's rows and results
// lay.
struct Workspace {
    int64_t capacity;
    Fp8Rows x, product;
    View gate_up, y;
    int32_t *slots, *ends;
    RoutedLine* sorted;

    Workspace(Stream& stream, const RoutedArgs& a, int tile_rows) {
        const int64_t hidden = a.x.cols, inner = a.experts->down.k();
        const int64_t choices = a.x.rows * std::min(a.top_k, a.num_experts);
        capacity =
            round_up(choices, tile_rows) + std::min<int64_t>(choices, a.num_experts) * tile_rows;
        const int64_t x_bytes = round_up(Fp8Rows::num_bytes(capacity, hidden), 256);
        const int64_t first = std::max<int64_t>(x_bytes + capacity * 2 * inner * sizeof(BF16),
                                                capacity * hidden * sizeof(BF16));
        const int64_t product_at = round_up(first, 256);
        const int64_t slots_at = product_at + round_up(Fp8Rows::num_bytes(capacity, inner), 256);
        const int64_t num_choices = a.x.rows * a.top_k;
        const int64_t sorted_at = slots_at + round_up(num_choices * sizeof(int32_t), 256);
        const int64_t ends_at = sorted_at + round_up(num_choices * sizeof(RoutedLine), 256);
        auto* memory = static_cast<std::byte*>(stream.card_scratch(
            Stream::CardScratch::kExperts, ends_at + kMaxExperts * sizeof(int32_t)));
        x = Fp8Rows::at(memory, capacity, hidden);
        gate_up = View(memory + x_bytes, DType::kBF16, capacity, 2 * inner);
        y = View(memory, DType::kBF16, capacity, hidden);
        product = Fp8Rows::at(memory + product_at, capacity, inner);
        slots = reinterpret_cast<int32_t*>(memory + slots_at);
        sorted = reinterpret_cast<RoutedLine*>(memory + sorted_at);
        ends = reinterpret_cast<int32_t*>(memory + ends_at);
    }
};

}  // namespace

bool fp8_serves(const RoutedArgs& a) {
    const LinearWeight &up = a.experts->gate_up, &down = a.experts->down;
    return up.storage() == DType::kF8E4M3 && down.storage() == DType::kF8E4M3 &&
           a.num_experts <= kMaxExperts && a.top_k <= kMaxChoices &&
           fp8_gemm_serves(up.n() / a.num_experts, up.k()) && up.n() % (128 * a.num_experts) == 0 &&
           fp8_gemm_serves(down.n() / a.num_experts, down.k()) &&
           down.n() % (128 * a.num_experts) == 0 && in_groups(a.x);
}

RoutedLines fp8_routed_lines(Stream& stream, const RoutedArgs& a) {
    const auto rows = static_cast<int>(a.x.rows), hidden = static_cast<int>(a.x.cols);
    const int num_choices = rows * a.top_k;
    Fp8Groups groups{.num_groups = a.num_experts,
                     .tile_rows = Fp8Groups::tile_rows_for(num_choices / a.num_experts)};
    const Workspace w(stream, a, groups.tile_rows);
    groups.ends = w.ends;
    launch_early(stream, dim3(1), dim3(kPlaceThreads), place, a.ids, num_choices, a.first_expert,
                 a.num_experts, groups.tile_rows, Fp8Groups::padded_groups(a.num_experts), w.slots,
                 w.ends);
    launch_early(stream, grid_of(rows, hidden, kThreads * kColumns), dim3(kThreads),
                 quantise_to_slots, reinterpret_cast<const __nv_bfloat16*>(a.x.data),
                 a.x.row_stride, a.top_k, a.ids, a.weights, w.slots, w.x, w.sorted);
    fp8_gemm_grouped(stream, w.x, a.experts->gate_up, groups, w.gate_up);
    launch_early(stream, grid_of(num_choices, w.product.cols, kThreads * kColumns), dim3(kThreads),
                 silu_mul_of_slots, reinterpret_cast<const __nv_bfloat16*>(w.gate_up.data), w.slots,
                 w.product);
    fp8_gemm_grouped(stream, w.product, a.experts->down, groups, w.y);
    return {w.y, w.sorted, a.top_k};
}

}  // namespace aerie::kernels::cuda
