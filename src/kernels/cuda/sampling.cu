// Compiled with -fmad=false: what draw_math.h says has the bits of the CPU.
#include <cooperative_groups.h>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row_io.cuh"
#include "kernels/draw_math.h"

namespace aerie::kernels::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kBlocks = 8;  // of a row: a cluster, each with a part of the ids in shared memory
constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kBins = 256;
constexpr float kBinsAGap = 8;  // of the first level, for a difference of 1 in logit / temperature
// Above what a score in float32 may be wrong by, where it can be the best.
constexpr float kScoreError = 1e-3f;
constexpr uint32_t kPlaceOfNever = 0xff800000u;  // of -infinity

// Ascending from the largest logit on; what no logit may be has 0.
__device__ uint32_t place_of(float x) {
    return x < INFINITY ? static_cast<uint32_t>(ordered(x)) ^ 0x7fffffffu : 0;
}
__device__ uint64_t order_of(float x, int id) {
    return uint64_t{place_of(x)} << 32 | static_cast<uint32_t>(id);
}

struct Score {
    double value;
    int32_t id;
};
struct Lower {
    __device__ bool operator()(uint64_t a, uint64_t b) const { return a < b; }
};
struct Higher {
    __device__ bool operator()(float a, float b) const { return a > b; }
    __device__ bool operator()(const Score& a, const Score& b) const {
        return a.value > b.value || (a.value == b.value && a.id < b.id);
    }
};

template <typename T>
struct Slots {
    T of_warp[kWarps];
    T of_block;
};

// How many candidates a bin has, and their weight in steps of 2^-34 as high · 2^17 + low: a block's
// candidates are too few for either to overflow.
struct Bins {
    uint32_t count[kBins], high[kBins], low[kBins];
};
constexpr int kMostIds = kMaxDrawIds / kBlocks + 4;  // of a block
static_assert(kMostIds < 1 << 15);
static_assert(kMostIds <= 64 * kThreads);  // Part::for_each_of

// Where the search for the last kept id is.
struct Search {
    double target;   // weight that may lie before a kept id
    uint64_t mass;   // before the chosen bin
    uint32_t count;  // likewise
    int bin;
    bool whole;  // all of the bin is kept
};

struct Shared {
    Slots<uint64_t> first;
    Slots<float> about;
    Slots<Score> exact;
    Bins bins[2];  // of levels in turn, so that others may still read the last one's
    uint64_t mass[kBins];  // of the cluster
    uint32_t count[kBins];
    Search search;
};

// The best of the values of all threads of a cluster, to all of them. Slots are used once.
template <typename T, typename Better>
__device__ T best_of_row(T mine, Slots<T>& slots, Better better) {
    const auto cluster = cg::this_cluster();
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const auto fold = [&](int lanes) {
        for (int lane = lanes / 2; lane > 0; lane /= 2) {
            const T other = warp.shfl_xor(mine, lane);
            if (better(other, mine)) mine = other;
        }
    };
    fold(32);
    if (warp.thread_rank() == 0) slots.of_warp[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x < 32) {
        mine = slots.of_warp[threadIdx.x % kWarps];
        fold(kWarps);
        if (threadIdx.x == 0) slots.of_block = mine;
    }
    cluster.sync();
    for (int block = 0; block < kBlocks; ++block) {
        const T other = *cluster.map_shared_rank(&slots.of_block, block);
        if (block == 0 || better(other, mine)) mine = other;
    }
    return mine;
}

__device__ float4 load_four(const float* row, int id, int end, bool aligned) {
    if (aligned && id + 4 <= end) return *reinterpret_cast<const float4*>(row + id);
    return {id < end ? row[id] : -INFINITY, id + 1 < end ? row[id + 1] : -INFINITY,
            id + 2 < end ? row[id + 2] : -INFINITY, id + 3 < end ? row[id + 3] : -INFINITY};
}

// The order of the first of this thread's ids of [begin, end), which go to `kept` where it is not
// null.
__device__ uint64_t load(const float* row, int begin, int end, float* kept) {
    constexpr int kAtOnce = 4;
    const bool aligned = reinterpret_cast<uintptr_t>(row) % 16 == 0;
    uint32_t first_place = ~0u;
    int first_id = -1;
    for (int base = begin + 4 * static_cast<int>(threadIdx.x); base < end;
         base += 4 * kThreads * kAtOnce) {
        float4 fours[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
            fours[i] = load_four(row, base + i * 4 * kThreads, end, aligned);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const int id = base + i * 4 * kThreads;
            if (id >= end) break;
            const float x[4] = {fours[i].x + 0.0f, fours[i].y + 0.0f, fours[i].z + 0.0f,
                                fours[i].w + 0.0f};  // -0 becomes 0
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const uint32_t place = place_of(x[j]);
                if (place < first_place) first_place = place, first_id = id + j;
            }
            if (kept != nullptr)
                *reinterpret_cast<float4*>(kept + id - begin) = {x[0], x[1], x[2], x[3]};
        }
    }
    return uint64_t{first_place} << 32 | static_cast<uint32_t>(first_id);
}

// The part of a row that one block has, with what all of its blocks know.
struct Part {
    const float* logits;  // [end - begin] in shared memory
    int begin, end;
    float largest;
    float scale;
    double inverse_temperature;
    double least_gap;
    uint64_t noise_base;
    // Kept are the ids of the bins before last_bin, and of that those up to `last` in order.
    int last_bin = kBins;
    uint64_t last = ~uint64_t{0};

    // fn(id, logit) for this thread's ids.
    template <int kAtOnce = 2, typename Fn>
    __device__ void for_each(Fn fn) const {
#pragma unroll kAtOnce
        for (int id = begin + static_cast<int>(threadIdx.x); id < end; id += kThreads) {
            const float x = logits[id - begin];
            if (x != -INFINITY) fn(id, x);
        }
    }
    // The same for those whose bits are set: bit i is the thread's i-th id.
    template <typename Fn>
    __device__ void for_each_of(uint64_t mask, Fn fn) const {
        for (; mask != 0; mask &= mask - 1) {
            const int at = static_cast<int>(threadIdx.x) +
                           kThreads * (__ffsll(static_cast<long long>(mask)) - 1);
            fn(begin + at, logits[at]);
        }
    }
    __device__ uint64_t bit_of(int id) const { return uint64_t{1} << (id - begin) / kThreads; }
    __device__ int bin_of(float x) const {
        const float bin = (largest - x) * (scale * kBinsAGap);
        return bin < kBins - 1 ? static_cast<int>(bin) : kBins - 1;
    }
    __device__ double gap(float x) const {
        return (static_cast<double>(x) - largest) * inverse_temperature;
    }
    __device__ bool keeps(int id, float x) const {
        if (last_bin < kBins) {
            const int bin = bin_of(x);
            if (bin > last_bin || (bin == last_bin && order_of(x, id) > last)) return false;
        }
        return least_gap == -INFINITY || gap(x) >= least_gap;
    }
    __device__ double score(int id, float x) const {
        return gap(x) - log(-log(noise_uniform(noise_bits(noise_base, id))));
    }
    // The same within kScoreError where it is not far below the best. With f the smaller of u and
    // 1 - u, -log(u) is taken where it loses nothing.
    __device__ float about(int id, float x) const {
        const uint64_t bits = noise_bits(noise_base, id);
        const bool near_one = (bits >> 63) != 0;
        const float f = __fmaf_rn(static_cast<float>((near_one ? ~bits : bits) >> 12), 0x1p-52f,
                                  0x1p-53f);
        float minus_log = -__logf(near_one ? 1.0f - f : f);
        if (near_one && f < 0x1p-6f) minus_log = f * (1.0f + f * (0.5f + f * (1.0f / 3)));
        return (x - largest) * scale - __logf(minus_log);
    }
};

// What top_k and top_p ask for.
struct Wanted {
    uint32_t most;  // ids
    bool weighs;    // else top_p asks for nothing
    double top_p;
};

// Chooses the last bin that has a kept id: before its first, fewer than the most ids and at most the
// target's weight lie. One warp; the bins are the cluster's.
__device__ void choose_bin(Shared& shared, const Wanted& wanted, bool first_level) {
    constexpr int kEach = kBins / 32;
    const int lane = threadIdx.x;
    uint32_t count = 0;
    uint64_t mass = 0;
    for (int i = 0; i < kEach; ++i) {
        count += shared.count[lane * kEach + i];
        mass += shared.mass[lane * kEach + i];
    }
    const uint32_t own_count = count;
    const uint64_t own_mass = mass;
    for (int step = 1; step < 32; step *= 2) {
        const uint32_t more = __shfl_up_sync(~0u, count, step);
        const uint64_t heavier = __shfl_up_sync(~0u, mass, step);
        if (lane >= step) count += more, mass += heavier;
    }
    // The CPU multiplies 2^-34 times this sum, and compares with 2^-34 times these: the same.
    const double total = static_cast<double>(__shfl_sync(~0u, mass, 31));
    Search chosen = shared.search;
    if (first_level) chosen = {wanted.weighs ? wanted.top_p * total : INFINITY, 0, 0, -1, false};
    chosen.bin = -1;
    count += chosen.count - own_count;
    mass += chosen.mass - own_mass;
    for (int i = 0; i < kEach; ++i) {
        const int bin = lane * kEach + i;
        const uint32_t in_bin = shared.count[bin];
        if (in_bin > 0 && count < wanted.most && static_cast<double>(mass) <= chosen.target) {
            chosen.mass = mass;
            chosen.count = count;
            chosen.bin = bin;
            chosen.whole = in_bin == 1 || (count + in_bin <= wanted.most &&
                                           static_cast<double>(mass + shared.mass[bin]) <=
                                               chosen.target);
        }
        count += in_bin;
        mass += shared.mass[bin];
    }
    const int last = __reduce_max_sync(~0u, chosen.bin);
    if (chosen.bin == last) shared.search = chosen;
}

// One level of the search. for_each(fn) calls fn(logit, bin) for this thread's candidates.
template <typename ForEach>
__device__ void search_level(const Part& part, Shared& shared, int level, const Wanted& wanted,
                             ForEach for_each) {
    const auto cluster = cg::this_cluster();
    Bins& bins = shared.bins[level % 2];
    const int bin = threadIdx.x;
    if (bin < kBins) bins.count[bin] = bins.high[bin] = bins.low[bin] = 0;
    __syncthreads();
    for_each([&](float x, int at) {
        atomicAdd(&bins.count[at], 1u);
        if (!wanted.weighs) return;
        const float w = draw_weight((x - part.largest) * part.scale) * 0x1p17f;
        const auto high = static_cast<uint32_t>(w);
        const auto low = static_cast<uint32_t>((w - static_cast<float>(high)) * 0x1p17f);
        if (high > 0) atomicAdd(&bins.high[at], high);
        if (low > 0) atomicAdd(&bins.low[at], low);
    });
    cluster.sync();
    if (bin < kBins) {
        uint32_t count = 0;
        uint64_t high = 0, low = 0;
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
            const Bins* theirs = cluster.map_shared_rank(&bins, block);
            count += theirs->count[bin];
            high += theirs->high[bin];
            low += theirs->low[bin];
        }
        shared.count[bin] = count;
        shared.mass[bin] = (high << 17) + low;
    }
    __syncthreads();
    if (threadIdx.x < 32) choose_bin(shared, wanted, level == 0);
    __syncthreads();
}

// Sets what top_k and top_p keep: a prefix of the order, whose last id is found digit by digit among
// those of its bin.
__device__ void cut(Part& part, Shared& shared, const Wanted& wanted) {
    search_level(part, shared, 0, wanted, [&](auto add) {
        part.for_each([&](int, float x) { add(x, part.bin_of(x)); });
    });
    part.last_bin = shared.search.bin;
    if (shared.search.whole) return;
    uint64_t candidates = 0;
    part.for_each([&](int id, float x) {
        if (part.bin_of(x) == part.last_bin) candidates |= part.bit_of(id);
    });
    uint64_t prefix = 0, known = 0;  // the order's digits so far, and which bits these are
    for (int level = 1; level < 8 && !shared.search.whole; ++level) {
        // Of the place, then of the id, whose first digit is 0.
        const int shift = level < 5 ? 64 - 8 * level : 56 - 8 * level;
        search_level(part, shared, level, wanted, [&](auto add) {
            part.for_each_of(candidates, [&](int id, float x) {
                const uint64_t order = order_of(x, id);
                if ((order & known) == prefix)
                    add(x, static_cast<int>(order >> shift & (kBins - 1)));
            });
        });
        prefix |= static_cast<uint64_t>(shared.search.bin) << shift;
        known |= uint64_t{kBins - 1} << shift;
        if (level == 4) known |= uint64_t{0xff} << 24;
    }
    part.last = prefix | ~known;
}

// The id with the best score of those that are kept. In float32 first, then exactly for those that may
// be the best, mostly one.
__device__ int race(const Part& part, Shared& shared) {
    float best = -INFINITY, second = -INFINITY;
    int best_id = -1;
    part.for_each<1>([&](int id, float x) {
        if (!part.keeps(id, x)) return;
        const float about = part.about(id, x);
        second = fmaxf(second, fminf(best, about));
        if (about > best) best = about, best_id = id;
    });
    const float bar = best_of_row(best, shared.about, Higher()) - kScoreError;
    Score winner{-INFINITY, -1};
    const auto enter = [&](int id, float x) {
        const Score score{part.score(id, x), id};
        if (Higher()(score, winner)) winner = score;
    };
    if (second >= bar) {
        part.for_each([&](int id, float x) {
            if (part.keeps(id, x) && part.about(id, x) >= bar) enter(id, x);
        });
    } else if (best >= bar) {
        enter(best_id, part.logits[best_id - part.begin]);
    }
    return best_of_row(winner, shared.exact, Higher()).id;
}

__global__ void __cluster_dims__(kBlocks) __launch_bounds__(kThreads, 3)
    draw_kernel(const float* logits, int64_t row_stride, int ids_of_block, const DrawParams* params,
                Drawn* drawn) {
    extern __shared__ __align__(16) float part_logits[];
    __shared__ Shared shared;
    const auto cluster = cg::this_cluster();
    const int64_t index = blockIdx.x / kBlocks;
    const DrawParams p = params[index];
    if (p.num_ids == 0) return;  // the whole cluster
    const float* row = logits + index * row_stride;
    const int begin = static_cast<int>(cluster.block_rank()) * ids_of_block;
    const int end = min(p.num_ids, begin + ids_of_block);
    const bool greedy = p.inverse_temperature == 0;

    const uint64_t first = best_of_row(load(row, begin, end, greedy ? nullptr : part_logits),
                                       shared.first, Lower());
    const auto place = static_cast<uint32_t>(first >> 32);
    int id = static_cast<int>(first);
    if (!greedy && place != 0 && place != kPlaceOfNever) {
        Part part{.logits = part_logits,
                  .begin = begin,
                  .end = end,
                  .largest = row[id] + 0.0f,
                  .scale = static_cast<float>(p.inverse_temperature),
                  .inverse_temperature = p.inverse_temperature,
                  .least_gap = p.least_gap,
                  .noise_base = p.noise_base};
        const bool by_k = p.top_k > 0 && p.top_k < p.num_ids, by_p = p.top_p < 1;
        const auto most = static_cast<uint32_t>(by_k ? p.top_k : p.num_ids);
        if (by_k || by_p) cut(part, shared, {most, by_p, p.top_p});
        id = race(part, shared);
    }
    if (cluster.block_rank() == 0 && threadIdx.x == 0) drawn[index] = {id, row[id]};
    cluster.sync();  // the others may still read this block's slots
}

}  // namespace

void draw(Stream& stream, const DrawArgs& args) {
    if (args.logits.rows == 0) return;
    const auto ids_of_block = static_cast<int>((args.logits.cols + 4 * kBlocks - 1) / (4 * kBlocks)) * 4;
    const auto bytes = static_cast<size_t>(ids_of_block) * sizeof(float);
    static const bool prepared = [] {
        CUDA_CHECK(cudaFuncSetAttribute(draw_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        kMostIds * static_cast<int>(sizeof(float))));
        return true;
    }();
    static_cast<void>(prepared);
    draw_kernel<<<static_cast<unsigned>(args.logits.rows * kBlocks), kThreads, bytes,
                  queue_of(stream)>>>(reinterpret_cast<const float*>(args.logits.data),
                                      args.logits.row_stride, ids_of_block, args.params, args.drawn);
    CUDA_CHECK(cudaGetLastError());
}

}  // namespace aerie::kernels::cuda
