#include "cache/block_pool.h"

#include "base/check.h"

namespace aerie::cache {

BlockPool::BlockPool(int num_blocks) : refs_(num_blocks, 0), free_(num_blocks) {
    for (int i = 0; i < num_blocks; ++i) free_[i] = num_blocks - 1 - i;
}

bool BlockPool::allocate(int n, std::vector<int32_t>& out) {
    if (n > num_free()) return false;
    for (int i = 0; i < n; ++i) {
        const int32_t block = free_.back();
        free_.pop_back();
        refs_[block] = 1;
        out.push_back(block);
    }
    return true;
}

void BlockPool::share(int32_t block) {
    CHECK(block >= 0 && block < num_blocks() && refs_[block] > 0, "block {} is not in use", block);
    ++refs_[block];
}

int BlockPool::release(int32_t block) {
    CHECK(block >= 0 && block < num_blocks() && refs_[block] > 0, "block {} is not in use", block);
    if (--refs_[block] == 0) free_.push_back(block);
    return refs_[block];
}

}  // namespace aerie::cache
