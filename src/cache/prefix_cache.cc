#include "cache/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace aerie::cache {

PrefixCache::PrefixCache(KvBlocks& kv, LowerTiers lower)
    : kv_(kv),
      make_copies_(std::move(lower.make_copies)),
      page_size_(kv.page_size()),
      num_idle_(kv.cp(), 0) {
    CHECK(lower.num_file_slots == 0 || make_copies_, "{} file slots", lower.num_file_slots);
    const int num_blocks = kv.pool(0).num_blocks();
    const size_t num_pages =
        (size_t{0} + num_blocks + lower.num_host_slots + lower.num_file_slots) * kv.cp();
    pages_.resize(num_pages);
    tokens_.resize(num_pages * page_size_);
    buckets_.assign(std::bit_ceil(num_pages), -1);
    page_of_.assign(kv.cp(), std::vector<int32_t>(num_blocks, -1));
    for (size_t page = num_pages; page-- > 0;) {
        pages_[page].next = free_page_;
        free_page_ = static_cast<int32_t>(page);
    }
    for (const auto& [tier, num_slots] : {std::pair(Tier::kHost, lower.num_host_slots),
                                          std::pair(Tier::kFile, lower.num_file_slots)}) {
        std::vector<int32_t> slots(num_slots);
        for (int i = 0; i < num_slots; ++i) slots[i] = num_slots - 1 - i;
        free_slots_[index(tier)].assign(kv.cp(), slots);
    }
    kv_.set_reclaimer(this);
}

PrefixCache::~PrefixCache() {
    kv_.set_reclaimer(nullptr);
    for (int rank = 0; rank < kv_.cp(); ++rank)
        for (size_t block = 0; block < page_of_[rank].size(); ++block)
            if (page_of_[rank][block] != -1) kv_.release(rank, static_cast<int32_t>(block));
}

PrefixCache::Match PrefixCache::match(const std::string& salt,
                                      std::span<const int32_t> tokens) const {
    Match found;
    int32_t at = find_root(salt);
    if (at == -1) return found;
    const auto page_size = static_cast<size_t>(page_size_);
    for (size_t end = page_size; end <= tokens.size(); end += page_size) {
        const int32_t* first = tokens.data() + end - page_size;
        at = find_child(at, first, hash(at, first));
        if (at == -1 || pages_[at].lost) break;
        (pages_[at].tier == Tier::kDevice ? found.num_tokens : found.num_lower_tokens) +=
            page_size_;
        found.page = at;
    }
    return found;
}

int PrefixCache::acquire(const std::string& salt, std::span<const int32_t> tokens,
                         std::vector<int32_t>& blocks) {
    CHECK(blocks.empty(), "{} blocks", blocks.size());
    const Match found = match(salt, tokens);
    int32_t page = found.page;
    // Those in lower tiers are used too: from the last to the first, as blocks are released.
    for (int i = 0; i < found.num_lower_tokens / page_size_; ++i, page = pages_[page].parent) {
        List& list = lists_[index(pages_[page].tier)];
        remove(list, page);
        append(list, page);
    }
    blocks.resize(found.num_tokens / page_size_);
    for (size_t i = blocks.size(); i-- > 0; page = pages_[page].parent) {
        blocks[i] = pages_[page].place;
        hold(page);
    }
    return found.num_tokens;
}

int PrefixCache::insert(const std::string& salt, std::span<const int32_t> tokens,
                        std::vector<int32_t>& blocks, std::vector<Placed>* replaced) {
    const size_t num_pages = tokens.size() / page_size_;
    CHECK(num_pages <= blocks.size(), "{} tokens, {} blocks", tokens.size(), blocks.size());
    if (num_pages == 0) return 0;
    int num_present = 0;
    int32_t at = make_root(salt);
    for (size_t i = 0; i < num_pages; ++i) {
        const int32_t* first = tokens.data() + i * page_size_;
        const uint32_t key = hash(at, first);
        const int32_t page = find_child(at, first, key);
        if (page == -1) {
            at = add_child(at, static_cast<int>(i), first, key, blocks[i]);
            continue;
        }
        at = page;
        if (pages_[page].tier != Tier::kDevice) {  // computed again: its slot is not needed any more
            leave_tier(page);
            give_block(page, blocks[i]);
            continue;
        }
        num_present += page_size_;
        if (pages_[page].place == blocks[i]) continue;
        hold(page);
        if (replaced)
            replaced->emplace_back(pages_[page].cp_rank, blocks[i]);
        else
            kv_.release(pages_[page].cp_rank, blocks[i]);
        blocks[i] = pages_[page].place;
    }
    return num_present;
}

int64_t PrefixCache::flush() {
    int64_t num_pages = 0;
    for (const Tier tier : {Tier::kFile, Tier::kHost, Tier::kDevice})
        for (; lists_[index(tier)].oldest != -1; ++num_pages) forget(lists_[index(tier)].oldest);
    return num_pages * page_size_;
}

int64_t PrefixCache::evictable_tokens() const {
    int64_t num_pages = 0;
    for (const int32_t num_idle : num_idle_) num_pages += num_idle;
    return num_pages * page_size_;
}

void PrefixCache::evict(const std::vector<int32_t>& free_wanted) {
    for (int rank = 0; rank < kv_.cp(); ++rank) {
        const List& idle = lists_[index(Tier::kDevice)];
        while (kv_.pool(rank).num_free() < free_wanted[rank] && idle.oldest != -1) {
            ++num_evicted_;
            move_down(idle.oldest);
        }
    }
}

void PrefixCache::on_last_holder(int cp_rank, int32_t block) {
    const int32_t page = page_of_[cp_rank][block];
    if (page == -1) return;
    append(lists_[index(Tier::kDevice)], page);
    ++num_idle_[cp_rank];
}

// -1: no page has this salt.
int32_t PrefixCache::find_root(const std::string& salt) const {
    const auto it = root_of_.find(salt);
    return it == root_of_.end() ? -1 : it->second;
}

int32_t PrefixCache::make_root(const std::string& salt) {
    const auto [it, is_new] = root_of_.try_emplace(salt, -1);
    if (!is_new) return it->second;
    if (free_roots_.empty()) {
        free_roots_.push_back(static_cast<int32_t>(roots_.size()));
        roots_.emplace_back();
    }
    const int32_t root = free_roots_.back();
    free_roots_.pop_back();
    roots_[root].salt = salt;
    return it->second = -2 - root;
}

uint32_t PrefixCache::hash(int32_t parent, const int32_t* tokens) const {
    return static_cast<uint32_t>(
        hash_bytes(tokens, sizeof(int32_t) * page_size_, static_cast<uint32_t>(parent)));
}

int32_t PrefixCache::find_child(int32_t parent, const int32_t* tokens, uint32_t hash) const {
    const size_t num_bytes = sizeof(int32_t) * page_size_;
    for (int32_t page = buckets_[hash & (buckets_.size() - 1)]; page != -1;
         page = pages_[page].next) {
        if (pages_[page].hash == hash && pages_[page].parent == parent &&
            std::memcmp(&tokens_[int64_t{page} * page_size_], tokens, num_bytes) == 0)
            return page;
    }
    return -1;
}

int32_t PrefixCache::add_child(int32_t parent, int page_idx, const int32_t* tokens, uint32_t hash,
                               int32_t block) {
    const int32_t page = free_page_;
    CHECK(page != -1, "{} pages, and none for one more", pages_.size());
    free_page_ = pages_[page].next;
    int32_t& bucket = buckets_[hash & (buckets_.size() - 1)];
    const int cp_rank = page_idx % kv_.cp();
    pages_[page] = {.parent = parent, .cp_rank = cp_rank, .hash = hash, .next = bucket};
    bucket = page;
    std::copy_n(tokens, page_size_, &tokens_[int64_t{page} * page_size_]);
    give_block(page, block);
    ++num_children(parent);
    return page;
}

int32_t& PrefixCache::num_children(int32_t parent) {
    return parent < 0 ? roots_[-2 - parent].num_children : pages_[parent].num_children;
}

bool PrefixCache::is_idle(int32_t page) const {
    return kv_.pool(pages_[page].cp_rank).num_holders(pages_[page].place) == 1;
}

void PrefixCache::hold(int32_t page) {
    const Page& p = pages_[page];
    if (is_idle(page)) {
        remove(lists_[index(Tier::kDevice)], page);
        --num_idle_[p.cp_rank];
    }
    kv_.share(p.cp_rank, p.place);
}

void PrefixCache::append(List& list, int32_t page) {
    pages_[page].older = list.newest;
    pages_[page].newer = -1;
    (list.newest == -1 ? list.oldest : pages_[list.newest].newer) = page;
    list.newest = page;
}

void PrefixCache::remove(List& list, int32_t page) {
    const Page& p = pages_[page];
    (p.older == -1 ? list.oldest : pages_[p.older].newer) = p.newer;
    (p.newer == -1 ? list.newest : pages_[p.newer].older) = p.older;
}

// A block that the caller holds becomes the page's, which has no place.
void PrefixCache::give_block(int32_t page, int32_t block) {
    Page& p = pages_[page];
    CHECK(page_of_[p.cp_rank][block] == -1, "block {} of cp rank {} is in the tree already", block,
          p.cp_rank);
    page_of_[p.cp_rank][block] = page;
    p.tier = Tier::kDevice;
    p.place = block;
    p.lost = false;
    ++num_in_[index(Tier::kDevice)];
    kv_.share(p.cp_rank, block);
}

// Its slot, or its block if it is idle, is free.
void PrefixCache::leave_tier(int32_t page) {
    Page& p = pages_[page];
    const int32_t place = std::exchange(p.place, -1);
    remove(lists_[index(p.tier)], page);
    --num_in_[index(p.tier)];
    if (p.tier != Tier::kDevice) return free_slots_[index(p.tier)][p.cp_rank].push_back(place);
    CHECK_EQ(kv_.pool(p.cp_rank).num_holders(place), 1);
    --num_idle_[p.cp_rank];
    page_of_[p.cp_rank][place] = -1;
    kv_.release(p.cp_rank, place);
}

// The page is idle, or in a lower tier.
void PrefixCache::forget(int32_t page) {
    Page& p = pages_[page];
    CHECK(p.num_children == 0, "page {} has {} children", page, p.num_children);
    leave_tier(page);
    int32_t* link = &buckets_[p.hash & (buckets_.size() - 1)];
    while (*link != page) link = &pages_[*link].next;
    *link = p.next;
    if (--num_children(p.parent) == 0 && p.parent < 0) {
        const int32_t root = -2 - p.parent;
        root_of_.erase(roots_[root].salt);
        free_roots_.push_back(root);
    }
    p.next = free_page_;
    free_page_ = page;
}

}  // namespace aerie::cache
