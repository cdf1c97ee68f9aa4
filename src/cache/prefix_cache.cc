#include "cache/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"

namespace aerie::cache {

PrefixCache::PrefixCache(KvBlocks& kv, int num_host_slots)
    : kv_(kv),
      page_size_(kv.page_size()),
      num_idle_(kv.cp(), 0),
      free_slots_(kv.cp(), std::vector<int32_t>(num_host_slots)) {
    const int num_blocks = kv.pool(0).num_blocks();
    const size_t num_pages = (static_cast<size_t>(num_blocks) + num_host_slots) * kv.cp();
    pages_.resize(num_pages);
    tokens_.resize(num_pages * page_size_);
    buckets_.assign(std::bit_ceil(num_pages), -1);
    page_of_.assign(kv.cp(), std::vector<int32_t>(num_blocks, -1));
    for (size_t page = num_pages; page-- > 0;) {
        pages_[page].next = free_page_;
        free_page_ = static_cast<int32_t>(page);
    }
    for (auto& slots : free_slots_)
        for (int i = 0; i < num_host_slots; ++i) slots[i] = num_host_slots - 1 - i;
    kv_.set_reclaimer(this);
}

PrefixCache::~PrefixCache() {
    kv_.set_reclaimer(nullptr);
    for (const Page& page : pages_)
        if (page.block >= 0) kv_.release(page.cp_rank, page.block);
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
        if (at == -1) break;
        (pages_[at].block >= 0 ? found.num_tokens : found.num_host_tokens) += page_size_;
        found.page = at;
    }
    return found;
}

int PrefixCache::acquire(const std::string& salt, std::span<const int32_t> tokens,
                         std::vector<int32_t>& blocks) {
    CHECK(blocks.empty(), "{} blocks", blocks.size());
    const Match found = match(salt, tokens);
    int32_t page = found.page;
    // Those in host memory are used too: from the last to the first, as blocks are released.
    for (int i = 0; i < found.num_host_tokens / page_size_; ++i, page = pages_[page].parent) {
        remove(host_, page);
        append(host_, page);
    }
    blocks.resize(found.num_tokens / page_size_);
    for (size_t i = blocks.size(); i-- > 0; page = pages_[page].parent) {
        blocks[i] = pages_[page].block;
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
        if (pages_[page].block == -1) {  // computed again: in host memory it is not needed any more
            leave_host(page);
            give_block(page, blocks[i]);
            continue;
        }
        num_present += page_size_;
        if (pages_[page].block == blocks[i]) continue;
        hold(page);
        if (replaced)
            replaced->emplace_back(pages_[page].cp_rank, blocks[i]);
        else
            kv_.release(pages_[page].cp_rank, blocks[i]);
        blocks[i] = pages_[page].block;
    }
    return num_present;
}

int64_t PrefixCache::flush() {
    const int num_before = num_pages_;
    while (host_.oldest != -1) forget(host_.oldest);
    while (idle_.oldest != -1) forget(idle_.oldest);
    return int64_t{num_before - num_pages_} * page_size_;
}

int64_t PrefixCache::evictable_tokens() const {
    int64_t num_pages = 0;
    for (const int32_t num_idle : num_idle_) num_pages += num_idle;
    return num_pages * page_size_;
}

void PrefixCache::evict(const std::vector<int32_t>& free_wanted) {
    for (int rank = 0; rank < kv_.cp(); ++rank) {
        while (kv_.pool(rank).num_free() < free_wanted[rank] && idle_.oldest != -1) {
            ++num_evicted_;
            demote(idle_.oldest);
        }
    }
}

void PrefixCache::on_last_holder(int cp_rank, int32_t block) {
    const int32_t page = page_of_[cp_rank][block];
    if (page == -1) return;
    append(idle_, page);
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
    CHECK(page != -1, "{} pages have no block for one more", num_pages_);
    free_page_ = pages_[page].next;
    int32_t& bucket = buckets_[hash & (buckets_.size() - 1)];
    const int cp_rank = page_idx % kv_.cp();
    pages_[page] = {
        .parent = parent, .block = block, .cp_rank = cp_rank, .hash = hash, .next = bucket};
    bucket = page;
    std::copy_n(tokens, page_size_, &tokens_[int64_t{page} * page_size_]);
    give_block(page, block);
    ++num_children(parent);
    ++num_pages_;
    return page;
}

int32_t& PrefixCache::num_children(int32_t parent) {
    return parent < 0 ? roots_[-2 - parent].num_children : pages_[parent].num_children;
}

bool PrefixCache::is_idle(int32_t page) const {
    return kv_.pool(pages_[page].cp_rank).num_holders(pages_[page].block) == 1;
}

void PrefixCache::hold(int32_t page) {
    const Page& p = pages_[page];
    if (is_idle(page)) {
        remove(idle_, page);
        --num_idle_[p.cp_rank];
    }
    kv_.share(p.cp_rank, p.block);
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

// A block that the caller holds becomes the page's, which has none.
void PrefixCache::give_block(int32_t page, int32_t block) {
    Page& p = pages_[page];
    CHECK(page_of_[p.cp_rank][block] == -1, "block {} of cp rank {} is in the tree already", block,
          p.cp_rank);
    page_of_[p.cp_rank][block] = page;
    p.block = block;
    kv_.share(p.cp_rank, block);
}

// The block of an idle page is free.
void PrefixCache::take_block(int32_t page) {
    Page& p = pages_[page];
    CHECK(is_idle(page), "page {} has {} holders", page, kv_.pool(p.cp_rank).num_holders(p.block));
    remove(idle_, page);
    --num_idle_[p.cp_rank];
    page_of_[p.cp_rank][p.block] = -1;
    kv_.release(p.cp_rank, p.block);
    p.block = -1;
}

// The page is idle, or in host memory.
void PrefixCache::forget(int32_t page) {
    Page& p = pages_[page];
    CHECK(p.num_children == 0, "page {} has {} children", page, p.num_children);
    if (p.block >= 0)
        take_block(page);
    else
        leave_host(page);
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
    --num_pages_;
}

}  // namespace aerie::cache
