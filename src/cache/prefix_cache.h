// PrefixCache: the radix tree of a replica's KV. Which block holds the KV of which page of tokens,
// after which pages before it, under which salt; so that a prompt that begins like an earlier one
// finds its KV. Whole pages only. Used by the leader's thread only.
//
// Holders. A page in the tree has a block of KvBlocks, which the tree holds. A sequence that uses
// the page holds the block too: a block's holders are the page's lock, and there is no other. Who
// holds a page holds all pages before it. So a page that the tree alone holds (idle) is followed by
// idle pages only, and every idle page can be evicted.
//
// Order. Idle pages stand in one list, by the moment at which their last user let go: KvBlocks
// releases a sequence from its last page to its first, so each page stands before the one that it
// continues. The head of the list is thus the least recently used page and has no page behind it:
// eviction takes the head, at O(1) a page, as match and insert cost O(1) a page.
//
// Lower tiers. A page that is evicted moves to a slot of host memory, where that is full one from
// there to a slot of the file, and back into a block of the sequence that needs it; what leaves the
// last tier is forgotten. On a path, pages with blocks come first, then those in host memory, then
// those in the file; each tier's list is ordered as that of the idle ones. The cache moves numbers;
// the bytes follow by the list of take_copies(), but for those out of the file: these are read at
// once, since a page that has not come back whole is computed, and the plan must know. Such a page
// is lost: no match goes beyond it until its KV has been computed again.
//
// Memory. There are never more pages than blocks and slots: all records are allocated with the
// cache.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/kv_blocks.h"

namespace aerie::cache {

class PrefixCache final : private Reclaimer {
  public:
    // Registers with `kv`, which must outlive it: extend() evicts what it needs from now on.
    explicit PrefixCache(KvBlocks& kv, LowerTiers lower = {});
    ~PrefixCache() override;
    PrefixCache(const PrefixCache&) = delete;
    PrefixCache& operator=(const PrefixCache&) = delete;

    // The longest prefix that is cached; changes nothing.
    struct Match {
        int num_tokens = 0;        // whole pages that have blocks
        int num_lower_tokens = 0;  // behind them, in host memory and the file
        int32_t page = -1;         // the last page of all, for parent(); -1: none
    };
    Match match(const std::string& salt, std::span<const int32_t> tokens) const;
    // The page that `page` continues; -1: it is the first.
    int32_t parent(int32_t page) const {
        return pages_[page].parent < 0 ? -1 : pages_[page].parent;
    }

    // As match(), and appends the blocks of pages that have one, which the caller holds from now
    // on, to `blocks` (empty before). KvBlocks::release() lets go of them as of any others. Returns
    // the number of their tokens.
    int acquire(const std::string& salt, std::span<const int32_t> tokens,
                std::vector<int32_t>& blocks);
    // After acquire() gave `num_acquired` and extend() lengthened the list: pages of the lower tiers
    // that follow take the caller's blocks. Returns their tokens; the KV is there after
    // take_copies(). Where one is in the file, all copies are made here.
    int restore(const std::string& salt, std::span<const int32_t> tokens,
                const std::vector<int32_t>& blocks, int num_acquired);
    // What is to be copied, in this order, before a step runs or a transfer writes into any block
    // that was allocated since.
    std::vector<KvCopy> take_copies() { return std::exchange(copies_, {}); }

    // The sequence of `tokens` holds `blocks`, whose KV is computed, or comes with a step that runs
    // before any that could use a match. The whole pages among them enter the tree. Where a page is
    // there already with another block, the caller's list gets the tree's (the KV is the same) and
    // its own goes to `replaced`: to be given back with kv.release(rank, block) once no step and no
    // transfer uses it; nullptr: at once. Returns how many tokens were there already.
    using Placed = std::pair<int, int32_t>;  // cp rank, block
    int insert(const std::string& salt, std::span<const int32_t> tokens,
               std::vector<int32_t>& blocks, std::vector<Placed>* replaced = nullptr);

    // Forgets every page that nobody uses, in all tiers. Returns how many tokens that were.
    int64_t flush();

    // Tokens, of all cp ranks.
    int64_t cached_tokens() const { return tokens_in(Tier::kDevice); }
    int64_t tokens_in(Tier tier) const { return int64_t{num_in_[index(tier)]} * page_size_; }
    int64_t evictable_tokens() const;
    // Since the start: evicted from blocks on demand, brought back from a lower tier, and pages that
    // the file has lost.
    uint64_t evicted_tokens() const { return num_evicted_ * page_size_; }
    uint64_t restored_tokens(Tier tier) const { return num_restored_[index(tier)] * page_size_; }
    uint64_t lost_pages() const { return num_lost_; }

  private:
    static constexpr size_t index(Tier tier) { return static_cast<size_t>(tier); }

    struct Page {
        int32_t parent = -1;  // page, or ~root
        Tier tier = Tier::kDevice;
        bool lost = false;   // the file has it, and not as it was
        int32_t place = -1;  // block or slot
        int32_t cp_rank = 0;
        int32_t num_children = 0;
        uint32_t hash = 0;
        int32_t next = -1;               // in the bucket; among the free records
        int32_t older = -1, newer = -1;  // in a list
    };
    struct List {  // by last use
        int32_t oldest = -1, newest = -1;
    };
    struct Root {  // the empty prefix under a salt; lives while pages continue it
        std::string salt;
        int32_t num_children = 0;
    };

    int num_evictable(int cp_rank) const override { return num_idle_[cp_rank]; }
    void evict(const std::vector<int32_t>& free_wanted) override;
    void on_last_holder(int cp_rank, int32_t block) override;

    int32_t find_root(const std::string& salt) const;
    int32_t make_root(const std::string& salt);
    int32_t find_child(int32_t parent, const int32_t* tokens, uint32_t hash) const;
    uint32_t hash(int32_t parent, const int32_t* tokens) const;
    int32_t add_child(int32_t parent, int page_idx, const int32_t* tokens, uint32_t hash,
                      int32_t block);
    int32_t& num_children(int32_t parent);
    bool is_idle(int32_t page) const;
    void hold(int32_t page);  // one more holder
    void append(List& list, int32_t page);
    void remove(List& list, int32_t page);
    void give_block(int32_t page, int32_t block);
    void leave_tier(int32_t page);
    void forget(int32_t page);

    // prefix_cache_tiers.cc
    void move_down(int32_t page);
    int32_t take_slot(Tier tier, int cp_rank);
    void lose_file();

    KvBlocks& kv_;
    const MakeCopies make_copies_;
    const int page_size_;
    uint64_t num_evicted_ = 0;  // pages, as all below
    uint64_t num_restored_[3] = {};  // [Tier]
    uint64_t num_lost_ = 0;
    int num_in_[3] = {};  // [Tier]
    std::vector<Page> pages_;
    std::vector<int32_t> tokens_;                // [pages, page_size]
    std::vector<int32_t> buckets_;               // of a power of two: first page
    std::vector<std::vector<int32_t>> page_of_;  // [cp][block], -1: not in the tree
    std::vector<int32_t> num_idle_;              // [cp]
    int32_t free_page_ = -1;
    List lists_[3];  // [Tier]: with blocks that nobody else holds; in host memory; in the file
    std::vector<std::vector<int32_t>> free_slots_[3];  // [Tier][cp]; none of blocks
    std::vector<KvCopy> copies_;
    std::vector<int32_t> coming_;  // pages that restore() brings back
    std::vector<Root> roots_;
    std::vector<int32_t> free_roots_;
    std::unordered_map<std::string, int32_t> root_of_;
};

}  // namespace aerie::cache
