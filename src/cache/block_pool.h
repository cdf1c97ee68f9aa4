// BlockPool: which blocks of one rank's KV cache are free. Bookkeeping only: it owns numbers, not
// memory. Used by the leader's thread only.
#pragma once

#include <cstdint>
#include <vector>

namespace aerie::cache {

class BlockPool {
  public:
    explicit BlockPool(int num_blocks);

    int num_blocks() const { return static_cast<int>(refs_.size()); }
    int num_free() const { return static_cast<int>(free_.size()); }
    int num_used() const { return num_blocks() - num_free(); }

    // Appends `n` blocks with one reference each to `out`, lowest numbers first after a start; or
    // none at all, and false, where fewer are free.
    bool allocate(int n, std::vector<int32_t>& out);

    // One more, or one less, holder of a block that is in use (CHECK). With the last it is free.
    // release() returns how many are left.
    void share(int32_t block);
    int release(int32_t block);
    int num_holders(int32_t block) const { return refs_[block]; }

  private:
    std::vector<int32_t> refs_;  // [num_blocks]
    std::vector<int32_t> free_;  // a stack: what was used last is warm
};

}  // namespace aerie::cache
