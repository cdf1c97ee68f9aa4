#include "cache/kv_blocks.h"

#include <algorithm>

#include "base/check.h"

namespace aerie::cache {

KvBlocks::KvBlocks(const KvBlocksOptions& options) : page_size_(options.page_size) {
    CHECK(options.num_blocks > 0 && options.page_size > 0 && options.cp > 0,
          "{} blocks of {}, cp {}", options.num_blocks, options.page_size, options.cp);
    for (int rank = 0; rank < options.cp; ++rank) pools_.emplace_back(options.num_blocks);
}

int64_t KvBlocks::free_tokens() const {
    int least = num_available(0);
    for (int rank = 1; rank < cp(); ++rank) least = std::min(least, num_available(rank));
    return int64_t{least} * cp() * page_size_;
}

int64_t KvBlocks::used_tokens() const {
    int64_t used = 0;
    for (int rank = 0; rank < cp(); ++rank) used += pools_[rank].num_blocks() - num_available(rank);
    return used * page_size_;
}

void KvBlocks::Demand::add(int have, int want) {
    for (int block = have; block < want; ++block) ++per_rank[block % per_rank.size()];
}

bool KvBlocks::fits(const Demand& demand) const {
    for (int rank = 0; rank < cp(); ++rank)
        if (demand.per_rank[rank] > num_available(rank)) return false;
    return true;
}

bool KvBlocks::extend(std::vector<int32_t>& blocks, int num_blocks) {
    const int have = static_cast<int>(blocks.size());
    Demand demand = no_demand();
    demand.add(have, num_blocks);
    if (!fits(demand)) return false;
    if (reclaimer_) reclaimer_->evict(demand.per_rank);
    for (int block = have; block < num_blocks; ++block)
        CHECK(pools_[block % cp()].allocate(1, blocks), "block {} was said to be free", block);
    return true;
}

void KvBlocks::release(std::vector<int32_t>& blocks) {
    // From the last to the first, so that a sequence that takes them next finds them in order, and
    // the reclaimer sees a page become idle before those that it continues.
    for (int block = static_cast<int>(blocks.size()) - 1; block >= 0; --block)
        release(block % cp(), blocks[block]);
    blocks.clear();
}

void KvBlocks::release(int cp_rank, int32_t block) {
    if (pools_[cp_rank].release(block) == 1 && reclaimer_)
        reclaimer_->on_last_holder(cp_rank, block);
}

}  // namespace aerie::cache
