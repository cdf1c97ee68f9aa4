// The prefix cache's lower tiers: pages whose KV is in host memory or in the file.
#include <algorithm>

#include "base/check.h"
#include "cache/prefix_cache.h"

namespace aerie::cache {

// The page that its tier's list begins with goes to the next tier that has slots; from the last one
// it is forgotten.
void PrefixCache::move_down(int32_t page) {
    Page& p = pages_[page];
    for (size_t below = index(p.tier) + 1; below <= index(Tier::kFile); ++below) {
        const Tier to = static_cast<Tier>(below);
        const int32_t slot = take_slot(to, p.cp_rank);
        if (slot == -1) continue;
        copies_.push_back({p.cp_rank, p.tier, to, p.place, slot});
        leave_tier(page);
        p.tier = to;
        p.place = slot;
        append(lists_[below], page);
        ++num_in_[below];
        return;
    }
    forget(page);
}

// Where none is free, pages that were not used for longest make room. -1: the tier has none at all.
int32_t PrefixCache::take_slot(Tier tier, int cp_rank) {
    std::vector<std::vector<int32_t>>& free = free_slots_[index(tier)];
    while (free[cp_rank].empty() && lists_[index(tier)].oldest != -1)
        move_down(lists_[index(tier)].oldest);
    if (free[cp_rank].empty()) return -1;
    const int32_t slot = free[cp_rank].back();
    free[cp_rank].pop_back();
    return slot;
}

int PrefixCache::restore(const std::string& salt, std::span<const int32_t> tokens,
                         const std::vector<int32_t>& blocks, int num_acquired) {
    int32_t at = find_root(salt);
    const size_t first_coming = num_acquired / page_size_, first_copy = copies_.size();
    const size_t num_pages = std::min(tokens.size() / page_size_, blocks.size());
    bool from_file = false;
    coming_.clear();
    for (size_t i = 0; at != -1 && i < num_pages; ++i) {
        const int32_t* first = tokens.data() + i * page_size_;
        at = find_child(at, first, hash(at, first));
        if (at == -1 || pages_[at].lost) break;
        if (i < first_coming) continue;
        const Page& page = pages_[at];
        CHECK(page.tier != Tier::kDevice, "page {} has block {}", at, page.place);
        copies_.push_back({page.cp_rank, page.tier, Tier::kDevice, page.place, blocks[i]});
        from_file |= page.tier == Tier::kFile;
        coming_.push_back(at);
    }
    CopiesMade made{.num_good = copies_.size()};
    if (from_file) {
        made = make_copies_(copies_);
        CHECK(made.num_good >= first_copy, "copy {} of {} failed, the first out of the file is {}",
              made.num_good, copies_.size(), first_copy);
        copies_.clear();
    }
    const size_t num_good = std::min(made.num_good - first_copy, coming_.size());
    for (size_t i = 0; i < num_good; ++i) {
        const int32_t page = coming_[i];
        ++num_restored_[index(pages_[page].tier)];
        leave_tier(page);
        give_block(page, blocks[first_coming + i]);
    }
    if (num_good < coming_.size()) {
        pages_[coming_[num_good]].lost = true;
        ++num_lost_;
    }
    if (!made.file_works) lose_file();
    return static_cast<int>(num_good) * page_size_;
}

// Nothing is in the file any more, and nothing goes there.
void PrefixCache::lose_file() {
    const List& file = lists_[index(Tier::kFile)];
    while (file.oldest != -1) forget(file.oldest);
    for (auto& slots : free_slots_[index(Tier::kFile)]) slots.clear();
}

}  // namespace aerie::cache
