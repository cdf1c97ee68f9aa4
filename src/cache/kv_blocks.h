// KvBlocks: the block pools of one replica, one for each context parallel rank. Block b of a
// sequence lives on rank b mod cp, so a sequence's list of blocks needs no rank beside the number.
// Used by the leader's thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/block_pool.h"
#include "cache/tiers.h"

namespace aerie::cache {

struct KvBlocksOptions {
    int num_blocks = 0;  // of each rank
    int page_size = 64;  // tokens a block
    int cp = 1;
    LowerTiers lower = {};   // of the prefix cache
};

// Who holds blocks that no sequence uses and gives them back on demand: the prefix cache.
class Reclaimer {
  public:
    virtual ~Reclaimer() = default;
    // Blocks of a cp rank that evict() can free.
    virtual int num_evictable(int cp_rank) const = 0;
    // Gives blocks back until each rank has as many free as asked for, or no more can be freed.
    virtual void evict(const std::vector<int32_t>& free_wanted) = 0;
    // A block was released and has one holder left, who may be this one.
    virtual void on_last_holder(int cp_rank, int32_t block) = 0;
};

class KvBlocks {
  public:
    explicit KvBlocks(const KvBlocksOptions& options);

    int page_size() const { return page_size_; }
    int cp() const { return static_cast<int>(pools_.size()); }

    int blocks_for(int64_t num_tokens) const {
        return static_cast<int>((num_tokens + page_size_ - 1) / page_size_);
    }

    // Tokens. Free is what one more sequence can use: it fills the ranks in turn, so the fullest
    // rank's free blocks count for all. What the reclaimer can free is free, and not in use.
    int64_t capacity() const { return int64_t{pools_[0].num_blocks()} * cp() * page_size_; }
    int64_t free_tokens() const;
    int64_t used_tokens() const;  // blocks in use of all ranks, times page_size

    // Lengthens a sequence's list to `num_blocks`, with the reclaimer's blocks where the free ones
    // do not do; leaves it as it is, and false, where a rank has too few. A list that is long
    // enough stays.
    bool extend(std::vector<int32_t>& blocks, int num_blocks);
    // What several extend() calls would take together.
    struct Demand {
        std::vector<int32_t> per_rank;  // [cp] blocks
        void add(int have, int want);   // the lengths of one list before and after
    };
    Demand no_demand() const { return {std::vector<int32_t>(pools_.size(), 0)}; }
    bool fits(const Demand& demand) const;

    // Gives a sequence's blocks back and empties the list.
    void release(std::vector<int32_t>& blocks);

    // For the reclaimer, which outlives its registration; nullptr ends it.
    void set_reclaimer(Reclaimer* reclaimer) { reclaimer_ = reclaimer; }
    void share(int cp_rank, int32_t block) { pools_[cp_rank].share(block); }
    void release(int cp_rank, int32_t block);

    const BlockPool& pool(int cp_rank) const { return pools_[cp_rank]; }

  private:
    int num_available(int cp_rank) const {
        return pools_[cp_rank].num_free() + (reclaimer_ ? reclaimer_->num_evictable(cp_rank) : 0);
    }

    int page_size_;
    Reclaimer* reclaimer_ = nullptr;
    std::vector<BlockPool> pools_;  // [cp]
};

}  // namespace aerie::cache
