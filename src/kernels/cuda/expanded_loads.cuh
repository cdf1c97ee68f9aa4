// What FlashInfer's attention kernel for Hopper is given here in place of its own parts: which work
// a thread block does, and how queries, keys and values come to shared memory.
#pragma once

#include <cuda.h>

// FlashInfer's header of this name includes most of CUTLASS, and its tools, for what is not used
// here.
#define FLASHINFER_CUTLASS_UTILS_CUH_
#include <cutlass/numeric_types.h>

#include <cute/tensor.hpp>
// before its kernel
#include <flashinfer/exception.h>

#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>

#include "kernels/cuda/expand_plan.h"

namespace aerie::kernels::cuda {

// One tile of rows and one head a thread block, in the order in which blocks begin: the longest
// tiles first, for as many heads at a time as the second-level cache holds keys and values of.
struct TileOfBlock {
    struct Params {
        const ExpandPlan::Tile* tiles;
        int num_tiles;
        int heads_at_once;  // a divisor of the heads
    };
    struct WorkTileInfo {
        int head;
        ExpandPlan::Tile tile;
        bool valid;

        __device__ bool is_valid(const Params&) const { return valid; }
        // Number of the tile, head of q and of keys, first row and token, rows, tokens, sequence.
        __device__ auto get_block_coord(const Params&) const {
            return cute::tuple{0,
                               head,
                               head,
                               int{tile.first_row},
                               int{tile.first_token},
                               int{tile.num_rows},
                               int{tile.num_tokens},
                               0};
        }
    };

    __device__ WorkTileInfo get_initial_work(const Params& p) const {
        const int block = static_cast<int>(blockIdx.x);
        const int of_heads = p.num_tiles * p.heads_at_once;
        const int i = block % of_heads;
        return {block / of_heads * p.heads_at_once + i % p.heads_at_once,
                p.tiles[i / p.heads_at_once], true};
    }
    template <bool kProducer>
    __device__ WorkTileInfo get_next_work(const Params&, const WorkTileInfo&) const {
        return {0, {}, false};
    }
    __device__ void init_consumer() const {}
    __device__ void prefetch_next_work(const Params&, const WorkTileInfo&) const {}
    __device__ void broadcast_next_work(const WorkTileInfo&) const {}
};

// Loads by TMA in slabs of 64 columns, as the swizzled layouts in shared memory have them. A key is
// 128 columns of its head and, for all heads, the 64 of the rotated part, which lie with the latent
// and are not copied for each head.
template <typename Traits>
struct ExpandedLoads {
    static constexpr int kHead = 256;  // columns of a head's keys, then values
    static constexpr int kSlab = 64;   // columns
    static constexpr int kRows = 128;  // of q and of tokens, in shared memory
    static constexpr int kSlabBytes = kRows * kSlab * 2;
    static constexpr int kKeySlabs = 3, kValueSlabs = 2;

    struct AdditionalParams {
        float sm_scale;
    };
    struct Params {
        CUtensorMap q;     // [rows, heads · 192]
        CUtensorMap kv;    // [tokens, heads · 256]
        CUtensorMap k_pe;  // [tokens, 64]
        int window_left;   // read by nobody
        AdditionalParams additional_params;
    };

    static constexpr bool USE_TMA_LOAD_KV = true;
    using MainloopPipeline = typename Traits::MainloopPipeline;
    using PipelineState = typename MainloopPipeline::PipelineState;
    using WarpScheduler = flashinfer::WarpScheduler<Traits, true>;
    static constexpr uint32_t TmaTransactionBytesQ = kKeySlabs * kSlabBytes;
    static constexpr uint32_t TmaTransactionBytesK = kKeySlabs * kSlabBytes;
    static constexpr uint32_t TmaTransactionBytesV = kValueSlabs * kSlabBytes;

    // Slab after slab, rows of 128 bytes, swizzled as TMA does it.
    template <typename Atom, typename Layout>
    static constexpr bool in_slabs() {
        constexpr auto plain = Layout{}.layout_b();
        return std::is_same_v<Atom, cute::GMMA::Layout_K_SW128_Atom<typename Traits::DTypeKV>> &&
               plain(1, 0) == kSlab && plain(kRows - 1, kSlab - 1) == kRows * kSlab - 1 &&
               plain(0, kSlab) == kRows * kSlab;
    }
    static_assert(in_slabs<typename Traits::SmemLayoutAtomQ, typename Traits::SmemLayoutQ>());
    static_assert(in_slabs<typename Traits::SmemLayoutAtomK,
                           decltype(cute::take<0, 2>(typename Traits::SmemLayoutK{}))>());
    static_assert(in_slabs<typename Traits::SmemLayoutAtomV,
                           decltype(cute::take<0, 2>(typename Traits::SmemLayoutV{}))>());
    static_assert(cute::size(typename Traits::SmemLayoutK{}) == 2 * kKeySlabs * kRows * kSlab &&
                  cute::size(typename Traits::SmemLayoutV{}) == 2 * kValueSlabs * kRows * kSlab);

    static __device__ void prefetch_tma_descriptors(const Params& p) {
        for (const CUtensorMap* map : {&p.q, &p.kv, &p.k_pe})
            cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(map));
    }

    __device__ int get_num_kv_tiles(const Params&, int, int, int num_tokens) const {
        return (num_tokens + kRows - 1) / kRows;
    }

    template <typename Barrier>
    static __device__ void load_slab(const CUtensorMap& map, Barrier* barrier, void* to, int column,
                                     int row) {
        cute::SM90_TMA_LOAD_2D::copy(&map, reinterpret_cast<uint64_t*>(barrier),
                                     static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL),
                                     to, column, row);
    }

    template <bool kWindow, typename Coord, typename Scheduler, typename Storage>
    __device__ void load(const Params& p, MainloopPipeline keys, MainloopPipeline values,
                         PipelineState& key_stage, PipelineState& value_stage, Storage& storage,
                         Scheduler&, const typename Scheduler::Params&,
                         typename Scheduler::WorkTileInfo&, const Coord& coord, int work_idx) {
        const auto [q_tile, head, kv_head, first_row, first_token, num_rows, num_tokens, sequence] =
            coord;
        const bool leads = cute::elect_one_sync();
        const auto at = [](auto& buffer, int slab) {
            return reinterpret_cast<std::byte*>(buffer.data()) + slab * kSlabBytes;
        };
        const auto load_keys = [&](int tile) {
            keys.producer_acquire(key_stage);
            auto* barrier = keys.producer_get_barrier(key_stage);
            const int slab = key_stage.index() * kKeySlabs, row = first_token + tile * kRows;
            for (int i = 0; i < 2; ++i)
                load_slab(p.kv, barrier, at(storage.smem_k, slab + i), head * kHead + i * kSlab,
                          row);
            load_slab(p.k_pe, barrier, at(storage.smem_k, slab + 2), 0, row);
            ++key_stage;
        };
        const auto load_values = [&](int tile) {
            values.producer_acquire(value_stage);
            auto* barrier = values.producer_get_barrier(value_stage);
            const int slab = value_stage.index() * kValueSlabs, row = first_token + tile * kRows;
            for (int i = 0; i < kValueSlabs; ++i)
                load_slab(p.kv, barrier, at(storage.smem_v, slab + i),
                          head * kHead + 128 + i * kSlab, row);
            ++value_stage;
        };
        int tile = get_num_kv_tiles(p, q_tile, num_rows, num_tokens) - 1;
        if (leads) load_keys(tile);
        // Until the products are done with the queries before, and the results with the values'
        // memory.
        cutlass::arch::NamedBarrier::sync(Traits::NUM_MMA_THREADS + Traits::NUM_PRODUCER_THREADS,
                                          static_cast<int>(flashinfer::NamedBarriers::kQueryEmpty));
        if (leads) {
            storage.barrier_Q.arrive_and_expect_tx(TmaTransactionBytesQ);
            for (int i = 0; i < kKeySlabs; ++i)
                load_slab(p.q, &storage.barrier_Q, at(storage.smem_q, i), head * 192 + i * kSlab,
                          first_row);
        }
        storage.barrier_O.wait((work_idx + 1) % 2);
        if (!leads) return;
        for (; tile > 0; --tile) {
            load_keys(tile - 1);
            load_values(tile);
        }
        load_values(0);
    }

    __device__ void load_tail(MainloopPipeline keys, MainloopPipeline values,
                              PipelineState& key_stage, PipelineState& value_stage) {
        if (__shfl_sync(~0u, threadIdx.x / 32 % 4, 0) == 0 && cute::elect_one_sync()) {
            keys.producer_tail(key_stage);
            values.producer_tail(value_stage);
        }
    }
};

}  // namespace aerie::kernels::cuda
