// PoolRegions: the pools of one replica, as their peers reach them.
#pragma once

#include <vector>

#include "transfer/layout.h"

namespace aerie::proto {
class KvBlocks;
}

namespace aerie::transfer {

class PoolRegions {
  public:
    explicit PoolRegions(std::vector<Pool> pools);

    void describe(proto::KvBlocks& into) const;  // adds the pools

    const std::vector<Pool>& pools() const { return pools_; }
    int cp() const { return static_cast<int>(pools_.size()); }
    int page_size() const { return pools_.front().page_size; }
    int blocks_for(int num_tokens) const { return (num_tokens + page_size() - 1) / page_size(); }

  private:
    const std::vector<Pool> pools_;  // [cp]
};

// A peer's blocks of one sequence.
struct RemoteBlocks {
    int first_block = 0;
    std::vector<int32_t> blocks;
    std::vector<RemotePool> pools;  // [cp of the peer]
};

// An error where `blocks` does not hold the blocks [first_block, num_blocks), names one that no pool
// has, or its pools have another shape than ours or cannot be reached. Not from a receiver.
Result<RemoteBlocks> attach(comm::Fabric& fabric, const proto::KvBlocks& blocks, int num_blocks,
                            const Pool& ours);

}  // namespace aerie::transfer
