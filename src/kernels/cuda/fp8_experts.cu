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
constexpr int kPlaceThreads = 1024, kThreads = 128, kDispatchThreads = 512;
constexpr int kFewChoices = 1024;  // that each block of place_and_quantise looks through
constexpr int kBatch = 8;          // choices that a thread looks up before it goes on

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Some choices of a thread, every blockDim.x-th from `base` on: what takes time is to wait for
// them.
struct Batch {
    int base;
    int expert[kBatch];  // of ours; −1: not ours

    __device__ Batch(int first, const int32_t* ids, int num_choices, int first_expert,
                     int num_experts)
        : base(first) {
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            const int i = base + j * static_cast<int>(blockDim.x);
            const int e = i < num_choices ? ids[i] - first_expert : -1;
            expert[j] = e < num_experts ? e : -1;
        }
    }
    // with(i, j, expert) of each that is ours
    template <typename With>
    __device__ void for_each(With with) const {
#pragma unroll
        for (int j = 0; j < kBatch; ++j)
            if (expert[j] >= 0) with(base + j * static_cast<int>(blockDim.x), j, expert[j]);
    }
};

// Thread e < kMaxExperts has expert e's number of rows. Fills begin, where the slots of each begin,
// and gives the thread's own. Ends with all threads of the block together.
__device__ int lay_out_experts(int count, int tile_rows, int* begin, int* sums) {
    const int t = threadIdx.x;
    int first = 0;
    if (t < kMaxExperts) {
        const int length = (count + tile_rows - 1) / tile_rows * tile_rows;
        int sum = length;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const int before = __shfl_up_sync(~0u, sum, distance);
            if (t % 32 >= distance) sum += before;
        }
        if (t % 32 == 31) sums[t / 32] = sum;
        first = sum - length;
    }
    __syncthreads();
    if (t < kMaxExperts) {
        for (int warp = 0; warp < t / 32; ++warp) first += sums[warp];
        begin[t] = first;
    }
    __syncthreads();
    return first;
}

// Gives each choice of an expert of ours a slot, -1 to the others, and says where each expert's
// slots end. One block; the order within an expert is any, as no row's result depends on it.
__global__ void __launch_bounds__(kPlaceThreads)
    place(const int32_t* ids, int num_choices, int first_expert, int num_experts, int tile_rows,
          int padded_experts, int32_t* slots, int32_t* ends) {
    after_earlier_kernels();
    __shared__ int count[kMaxExperts], begin[kMaxExperts], sums[kMaxExperts / 32];
    const int t = threadIdx.x;
    constexpr int kStep = kPlaceThreads * kBatch;
    const auto batch_at = [&](int base) {
        return Batch(base, ids, num_choices, first_expert, num_experts);
    };
    // Places within the experts: of the first batch, mostly the only one, they stay in registers.
    const Batch first_batch = batch_at(t);
    int place_of[kBatch];
    if (t < kMaxExperts) count[t] = 0;
    __syncthreads();
    first_batch.for_each(
        [&](int, int j, int expert) { place_of[j] = atomicAdd(&count[expert], 1); });
    for (int base = t + kStep; base < num_choices; base += kStep)
        batch_at(base).for_each(
            [&](int i, int, int expert) { slots[i] = atomicAdd(&count[expert], 1); });
    __syncthreads();
    const int of_mine = t < kMaxExperts ? count[t] : 0;
    const int first = lay_out_experts(of_mine, tile_rows, begin, sums);
    if (t < padded_experts) ends[t] = first + of_mine;
    for (int base = t; base < num_choices; base += kStep) {
        const Batch batch = base == t ? first_batch : batch_at(base);
        if (base > t) {
#pragma unroll
            for (int j = 0; j < kBatch; ++j)
                if (batch.expert[j] >= 0) place_of[j] = slots[base + j * kPlaceThreads];
        }
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            const int i = base + j * kPlaceThreads, expert = batch.expert[j];
            if (i < num_choices) slots[i] = expert >= 0 ? place_of[j] + begin[expert] : -1;
        }
    }
}

// Puts a row's slots in the order of their experts, those that are not ours last, as -1, and their
// weights beside them. The row's first threads.
__device__ void sort_choices(const int32_t* ids, const float* weights, const int32_t* slots,
                             int top_k, RoutedLine* sorted) {
    const auto mine = static_cast<int>(threadIdx.x);
    if (mine >= top_k) return;
    const bool ours = slots[mine] >= 0;
    int rank = 0;
    for (int other = 0; other < top_k; ++other) {
        const bool other_ours = slots[other] >= 0;
        // Those that are not ours may have one number.
        rank += ours == other_ours
                    ? ids[other] < ids[mine] || (ids[other] == ids[mine] && other < mine)
                    : other_ours;
    }
    sorted[rank] = {slots[mine], weights[mine]};
}

// Some of a row's slots.
struct Slots {
    int slot[kBatch];

    __device__ Slots(const int32_t* slots, int base, int top_k) {
#pragma unroll
        for (int j = 0; j < kBatch; ++j) slot[j] = base + j < top_k ? slots[base + j] : -1;
    }
    __device__ void store(const Quantised& q, const Fp8Rows& out, int column) const {
#pragma unroll
        for (int j = 0; j < kBatch; ++j)
            if (slot[j] >= 0) q.store(out, slot[j], column);
    }
};

// Threads past the last column repeat its group's, as all lanes take part in quantise().
__device__ inline int clamped(int column, int cols) {
    return min(column, cols - 128 + column % 128);
}

// The rows of blocks of silu_mul_of_slots and quantise_to_slots: each block takes kThreads ·
// kColumns columns.
__device__ inline int column_of_thread() {
    return static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * kColumns;
}

// Each row to all its slots, which place() has given it.
__global__ void __launch_bounds__(kThreads)
    quantise_to_slots(const __nv_bfloat16* x, int64_t row_stride, int top_k, const int32_t* ids,
                      const float* weights, const int32_t* slots, Fp8Rows out, RoutedLine* sorted) {
    after_earlier_kernels();
    const int64_t row = blockIdx.x, first = row * top_k;
    const int column = column_of_thread(), cols = static_cast<int>(out.cols);
    const Columns columns = Columns::load(x + row * row_stride + clamped(column, cols));
    const Slots slots_of_row(slots + first, 0, top_k);  // on their way beside the columns
    const Quantised q = quantise(columns);
    if (column < cols) {
        slots_of_row.store(q, out, column);
        for (int base = kBatch; base < top_k; base += kBatch)
            Slots(slots + first, base, top_k).store(q, out, column);
    }
    if (blockIdx.y == 0)
        sort_choices(ids + first, weights + first, slots + first, top_k, sorted + first);
}

// Both in one for few choices, a block a row: each counts all choices by itself, and gives its
// row's places behind those of the rows before.
__global__ void __launch_bounds__(kDispatchThreads)
    place_and_quantise(const __nv_bfloat16* x, int64_t row_stride, int top_k, const int32_t* ids,
                       const float* weights, int first_expert, int num_experts, int tile_rows,
                       int padded_experts, Fp8Rows out, int32_t* slots, int32_t* ends,
                       RoutedLine* sorted) {
    after_earlier_kernels();
    static_assert(kDispatchThreads >= kMaxExperts);
    __shared__ int before[kMaxExperts], behind[kMaxExperts], begin[kMaxExperts];
    __shared__ int sums[kMaxExperts / 32], of_row[kMaxChoices];
    const int64_t row = blockIdx.x;
    const int t = threadIdx.x, first = static_cast<int>(row) * top_k;
    const int cols = static_cast<int>(out.cols);
    const __nv_bfloat16* from = x + row * row_stride;
    Columns columns = Columns::load(from + clamped(t * kColumns, cols));
    if (t < kMaxExperts) before[t] = behind[t] = 0;
    __syncthreads();
    const int num_choices = static_cast<int>(gridDim.x) * top_k;
    for (int at = t; at < num_choices; at += kDispatchThreads * kBatch)
        Batch(at, ids, num_choices, first_expert, num_experts)
            .for_each([&](int i, int, int expert) {
                atomicAdd(i < first ? &before[expert] : &behind[expert], 1);
            });
    __syncthreads();
    const int of_mine = t < kMaxExperts ? before[t] + behind[t] : 0;
    const int begin_of_mine = lay_out_experts(of_mine, tile_rows, begin, sums);
    if (row == 0 && t < padded_experts) ends[t] = begin_of_mine + of_mine;
    if (t < top_k) {
        const int expert = ids[first + t] - first_expert;
        const bool ours = expert >= 0 && expert < num_experts;
        of_row[t] = slots[first + t] = ours ? begin[expert] + before[expert] : -1;
    }
    __syncthreads();
    for (int base = 0; base < cols; base += kDispatchThreads * kColumns) {
        const int column = base + t * kColumns;
        if (base > 0) columns = Columns::load(from + clamped(column, cols));
        const Quantised q = quantise(columns);
        for (int at = 0; column < cols && at < top_k; at += kBatch)
            Slots(of_row, at, top_k).store(q, out, column);
    }
    sort_choices(ids + first, weights + first, of_row, top_k, sorted + first);
}

// The slot of one choice a row of blocks.
__global__ void __launch_bounds__(kThreads)
    silu_mul_of_slots(const __nv_bfloat16* gate_up, const int32_t* slots, Fp8Rows out) {
    after_earlier_kernels();
    const int64_t slot = slots[blockIdx.x];
    if (slot < 0) return;
    const int column = column_of_thread(), cols = static_cast<int>(out.cols);
    const __nv_bfloat16* from = gate_up + slot * 2 * cols + clamped(column, cols);
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
    const auto* x = reinterpret_cast<const __nv_bfloat16*>(a.x.data);
    const int padded = Fp8Groups::padded_groups(a.num_experts);
    if (num_choices <= kFewChoices) {
        launch_early(stream, dim3(rows), dim3(kDispatchThreads), place_and_quantise, x,
                     a.x.row_stride, a.top_k, a.ids, a.weights, a.first_expert, a.num_experts,
                     groups.tile_rows, padded, w.x, w.slots, w.ends, w.sorted);
    } else {
        launch_early(stream, dim3(1), dim3(kPlaceThreads), place, a.ids, num_choices,
                     a.first_expert, a.num_experts, groups.tile_rows, padded, w.slots, w.ends);
        launch_early(stream, grid_of(rows, hidden, kThreads * kColumns), dim3(kThreads),
                     quantise_to_slots, x, a.x.row_stride, a.top_k, a.ids, a.weights, w.slots, w.x,
                     w.sorted);
    }
    fp8_gemm_grouped(stream, w.x, a.experts->gate_up, groups, w.gate_up);
    launch_early(stream, grid_of(num_choices, w.product.cols, kThreads * kColumns), dim3(kThreads),
                 silu_mul_of_slots, reinterpret_cast<const __nv_bfloat16*>(w.gate_up.data), w.slots,
                 w.product);
    fp8_gemm_grouped(stream, w.product, a.experts->down, groups, w.y);
    return {w.y, w.sorted, a.top_k};
}

}  // namespace aerie::kernels::cuda
