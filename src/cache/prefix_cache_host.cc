// The prefix cache's second tier: pages whose KV is in host memory.
#include "base/check.h"
#include "cache/prefix_cache.h"

namespace aerie::cache {

// An idle page gives up its block, and takes the slot of the page in host memory that was not used
// for longest where none is free. Without host memory it is forgotten.
void PrefixCache::demote(int32_t page) {
    const int rank = pages_[page].cp_rank;
    std::vector<int32_t>& free = free_slots_[rank];
    while (free.empty() && host_.oldest != -1) forget(host_.oldest);
    if (free.empty()) return forget(page);
    const int32_t slot = free.back();
    free.pop_back();
    copies_.push_back(
        {.cp_rank = rank, .to_host = true, .block = pages_[page].block, .slot = slot});
    take_block(page);
    pages_[page].slot = slot;
    append(host_, page);
    ++num_host_pages_;
}

void PrefixCache::leave_host(int32_t page) {
    Page& p = pages_[page];
    remove(host_, page);
    --num_host_pages_;
    free_slots_[p.cp_rank].push_back(p.slot);
    p.slot = -1;
}

int PrefixCache::restore(const std::string& salt, std::span<const int32_t> tokens,
                         const std::vector<int32_t>& blocks, int num_acquired) {
    int32_t at = find_root(salt);
    if (num_host_pages_ == 0 || at == -1) return 0;
    int num_tokens = 0;
    const size_t num_pages = std::min(tokens.size() / page_size_, blocks.size());
    for (size_t i = 0; i < num_pages; ++i) {
        const int32_t* first = tokens.data() + i * page_size_;
        at = find_child(at, first, hash(at, first));
        if (at == -1) break;
        if (static_cast<int>(i) * page_size_ < num_acquired) continue;
        const Page& page = pages_[at];
        CHECK_EQ(page.block, -1);
        copies_.push_back({.cp_rank = page.cp_rank, .block = blocks[i], .slot = page.slot});
        leave_host(at);
        give_block(at, blocks[i]);
        num_tokens += page_size_;
        ++num_restored_;
    }
    return num_tokens;
}

}  // namespace aerie::cache
