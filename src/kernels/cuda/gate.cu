#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_io.cuh"

namespace aerie::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr uint32_t kNever = 0;  // below every key

// exp with the steps, and so the bits, of the CPU's (kernels/cpu/vec.h), lest the two choose other
// experts where scores nearly tie.
__device__ float exp_as_cpu(float x) {
    const float v = __fmul_rn(x > 88.0f ? 88.0f : x, 1.44269504f);
    const float n = rintf(v), f = __fsub_rn(v, n);
    float r = 1.54035304e-4f;
    r = __fmaf_rn(r, f, 1.33335581e-3f);
    r = __fmaf_rn(r, f, 9.61812911e-3f);
    r = __fmaf_rn(r, f, 5.55041087e-2f);
    r = __fmaf_rn(r, f, 2.40226507e-1f);
    r = __fmaf_rn(r, f, 6.93147181e-1f);
    r = __fmaf_rn(r, f, 1.0f);
    return v < -126.0f ? 0.0f : ldexpf(r, static_cast<int>(n));
}

// Larger floats have larger keys, and no float has kNever. The two zeros are one.
__device__ uint32_t key_of(float x) {
    const uint32_t bits = __float_as_uint(__fadd_rn(x, 0.0f));
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ float value_of(uint32_t key) {
    return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

// The scores of a row, in shared memory; all threads.
__device__ void score(const GateArgs& args, const float* logits, int n, float* scores) {
    if (args.scoring == Scoring::kSigmoid) {
        for (int e = threadIdx.x; e < n; e += kThreads)
            scores[e] = __fdiv_rn(1.0f, __fadd_rn(1.0f, exp_as_cpu(-logits[e])));
        return;
    }
    __shared__ float warp_best[kWarps];
    float best = -INFINITY;
    for (int e = threadIdx.x; e < n; e += kThreads) best = fmaxf(best, logits[e]);
    for (int lane = 16; lane > 0; lane /= 2) best = fmaxf(best, __shfl_xor_sync(~0u, best, lane));
    if (threadIdx.x % 32 == 0) warp_best[threadIdx.x / 32] = best;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) best = fmaxf(best, warp_best[w]);
    for (int e = threadIdx.x; e < n; e += kThreads) scores[e] = exp_as_cpu(logits[e] - best);
    __syncthreads();
    float total = 0;  // in order, as on the CPU; every thread the same
    for (int e = 0; e < n; ++e) total = __fadd_rn(total, scores[e]);
    __syncthreads();
    for (int e = threadIdx.x; e < n; e += kThreads) scores[e] = __fdiv_rn(scores[e], total);
}

// The score of a group of keys, by one warp: the sum of its two best, or its best.
__device__ float group_score(const uint32_t* keys, int size, bool two_best) {
    uint32_t first = kNever, second = kNever;
    for (int i = threadIdx.x % 32; i < size; i += 32) {
        const uint32_t key = keys[i];
        second = max(second, min(first, key));
        first = max(first, key);
    }
    const uint32_t best = __reduce_max_sync(~0u, first);
    if (!two_best || size == 1) return value_of(best);
    // One lane gives its best away, the lowest of those that have it.
    const uint32_t holders = __ballot_sync(~0u, first == best);
    if (static_cast<int>(threadIdx.x % 32) == __ffs(static_cast<int>(holders)) - 1) first = second;
    return __fadd_rn(value_of(best), value_of(__reduce_max_sync(~0u, first)));
}

// The topk_group best groups, as bits, by one warp.
__device__ uint64_t best_groups(const GateArgs& args, const float* group_scores) {
    const int lane = threadIdx.x % 32;
    uint32_t keys[2];
    static_assert(kMaxExpertGroups == 64);
    for (int i = 0; i < 2; ++i) {
        const int g = i * 32 + lane;
        keys[i] = g < args.num_groups ? key_of(group_scores[g]) : kNever;
    }
    uint64_t kept = 0;
    for (int i = 0; i < args.topk_group; ++i) {
        const uint32_t best = __reduce_max_sync(~0u, max(keys[0], keys[1]));
        const uint32_t low = __ballot_sync(~0u, keys[0] == best);
        const uint32_t high = __ballot_sync(~0u, keys[1] == best);
        const int g =
            low != 0 ? __ffs(static_cast<int>(low)) - 1 : 31 + __ffs(static_cast<int>(high));
        kept |= uint64_t{1} << g;
        if (g == lane) keys[0] = kNever;
        if (g == lane + 32) keys[1] = kNever;
    }
    return kept;
}

// One block a row. Scores and choices by all threads, groups by a warp each, the selection by one,
// of whose lanes each has every 32nd choice.
template <int kPerLane>
__global__ void __launch_bounds__(kThreads) gate_kernel(const __grid_constant__ GateArgs args) {
    __shared__ float scores[kMaxExperts];
    __shared__ uint32_t keys[kMaxExperts];
    __shared__ float group_scores[kMaxExpertGroups];
    after_earlier_kernels();
    const int n = static_cast<int>(args.logits.cols);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const auto* logits =
        reinterpret_cast<const float*>(args.logits.data) + blockIdx.x * args.logits.row_stride;
    score(args, logits, n, scores);
    const bool biased = args.method == TopkMethod::kNoauxTc && args.bias != nullptr;
    for (int e = threadIdx.x; e < n; e += kThreads)  // those that this thread has scored
        keys[e] = key_of(biased ? __fadd_rn(scores[e], args.bias[e]) : scores[e]);
    __syncthreads();

    uint64_t kept = ~uint64_t{0};
    const int size = n / args.num_groups;
    if (args.method != TopkMethod::kGreedy && args.topk_group < args.num_groups) {
        for (int g = warp; g < args.num_groups; g += kWarps) {
            const float s = group_score(keys + g * size, size, args.method == TopkMethod::kNoauxTc);
            if (lane == 0) group_scores[g] = s;
        }
        __syncthreads();
        if (warp == 0) kept = best_groups(args, group_scores);
    }
    if (warp != 0) return;

    uint32_t mine[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
        const int e = i * 32 + lane;
        mine[i] = e < n && (kept >> (e / size) & 1) != 0 ? keys[e] : kNever;
    }
    int32_t* ids = args.ids + int64_t{blockIdx.x} * args.top_k;
    float* weights = args.weights + int64_t{blockIdx.x} * args.top_k;
    float total = 0;
    for (int i = 0; i < args.top_k; ++i) {
        uint32_t best = kNever;
#pragma unroll
        for (int j = 0; j < kPerLane; ++j) best = max(best, mine[j]);
        best = __reduce_max_sync(~0u, best);
        int at = kMaxExperts;
#pragma unroll
        for (int j = kPerLane - 1; j >= 0; --j)
            if (mine[j] == best) at = j * 32 + lane;
        at = __reduce_min_sync(~0u, at);
#pragma unroll
        for (int j = 0; j < kPerLane; ++j)
            if (j * 32 + lane == at) mine[j] = kNever;
        total = __fadd_rn(total, scores[at]);
        if (lane == 0) ids[i] = at;
    }
    __syncwarp();
    const float sum = __fadd_rn(total, 1e-20f);
    for (int i = lane; i < args.top_k; i += 32) {
        const float s = scores[ids[i]];
        weights[i] =
            __fmul_rn(args.norm_topk_prob ? __fdiv_rn(s, sum) : s, args.routed_scaling_factor);
    }
}

}  // namespace

void gate(Stream& stream, const GateArgs& args) {
    const int64_t experts = args.logits.cols;
    if (args.logits.rows == 0) return;
    const auto kernel = experts <= 64    ? gate_kernel<2>
                        : experts <= 256 ? gate_kernel<8>
                                         : gate_kernel<kMaxExperts / 32>;
    launch_early(stream, dim3(static_cast<unsigned>(args.logits.rows)), dim3(kThreads), kernel,
                 args);
}

}  // namespace aerie::kernels::cuda
