// Random sequences come, share prefixes, grow, end and are dropped, with the real cache beside a
// model that knows nothing of lists and hashes: a map from the prefix to its block and last use.
// The memory of blocks, host and file is there too, so that copies can go wrong; now and then a page
// does not come back out of the file, or none does any more.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "cache/prefix_model.h"

namespace aerie::cache {
namespace {

class Workload {
  public:
    Workload(uint32_t seed, const KvBlocksOptions& options)
        : options_(options),
          random_(seed),
          kv_(options),
          cache_(kv_, {options.lower.num_host_slots, options.lower.num_file_slots,
                       [this](std::span<const KvCopy> copies) { return make(copies); }}),
          model_(options) {}

    void run(int num_actions) {
        for (int i = 0; i < num_actions; ++i) {
            act();
            check();
            if (testing::Test::HasFatalFailure()) return;
        }
        while (!users_.empty()) drop(0);
        settle();
        cache_.flush();
        cache_.take_copies();
        model_.pages.clear();
        check();
        EXPECT_EQ(kv_.free_tokens(), kv_.capacity());
        for (int rank = 0; rank < options_.cp; ++rank) EXPECT_EQ(kv_.pool(rank).num_used(), 0);
    }

    uint64_t num_lost() const { return cache_.lost_pages(); }
    uint64_t num_from_file() const { return cache_.restored_tokens(Tier::kFile); }

  private:
    int pick(int low, int high) { return low + static_cast<int>(random_() % (high - low + 1)); }

    // Few salts and few tokens, so that prefixes meet.
    Tokens grow(Tokens tokens, int num_more) {
        for (int i = 0; i < num_more; ++i) tokens.push_back(pick(0, 99) < 90 ? 7 : pick(0, 3));
        return tokens;
    }

    void act() {
        const int what = pick(0, 99);
        if (what < 40) return start();
        if (what < 42) return flush();
        if (what < 50) return settle();
        if (users_.empty()) return;
        const int which = pick(0, static_cast<int>(users_.size()) - 1);
        if (what < 70) return lengthen(users_[which]);
        if (what < 80) return insert(users_[which], true);
        if (what < 95) insert(users_[which], false);
        drop(which);
    }

    // As extend() should behave, in the model.
    bool model_extend(const User& user, int num_blocks) {
        std::vector<int> wanted(options_.cp, 0);
        for (int b = static_cast<int>(user.blocks.size()); b < num_blocks; ++b)
            ++wanted[b % options_.cp];
        std::vector<int> free(options_.cp), available(options_.cp);
        for (int rank = 0; rank < options_.cp; ++rank)
            available[rank] = free[rank] = kv_.pool(rank).num_free();
        for (const auto& [key, page] : model_.pages)
            available[model_.rank(key)] += page.block >= 0 && !model_.used(key, users_);
        for (int rank = 0; rank < options_.cp; ++rank)
            if (wanted[rank] > available[rank]) return false;
        for (int rank = 0; rank < options_.cp; ++rank) {
            while (wanted[rank] > free[rank]) {
                const int freed = model_.evict_one(Tier::kDevice, users_);
                EXPECT_NE(freed, -1);
                if (freed == -1) return false;
                ++free[freed];
            }
        }
        return true;
    }
    bool extend(User& user, int num_blocks) {
        const bool expected = model_extend(user, num_blocks);
        EXPECT_EQ(kv_.extend(user.blocks, num_blocks), expected);
        return expected;
    }

    // What the model calls the KV of a page: all tokens up to its end.
    static Key kv_of(const User& user, size_t end) {
        return {user.salt, Tokens(user.tokens.begin(), user.tokens.begin() + end)};
    }
    Key& memory(size_t page, int32_t block) {
        return memory_[{Tier::kDevice, static_cast<int>(page) % options_.cp, block}];
    }
    CopiesMade make(std::span<const KvCopy> copies) {
        CopiesMade made{.num_good = copies.size(), .file_works = !file_is_off_};
        for (size_t i = 0; i < copies.size(); ++i) {
            const KvCopy& copy = copies[i];
            const bool bad = copy.from == Tier::kFile && (file_is_off_ || --reads_until_bad_ == 0);
            memory_[{copy.to, copy.cp_rank, copy.target}] =
                bad ? Key() : memory_[{copy.from, copy.cp_rank, copy.source}];
            if (bad) made.num_good = std::min(made.num_good, i);
        }
        return made;
    }
    void copy() { make(cache_.take_copies()); }
    // Computes all pages from `num_cached` on; those before must be there.
    void compute(const User& user, int num_cached) {
        const size_t page_size = options_.page_size;
        for (size_t page = 0; page < user.blocks.size(); ++page) {
            const Key kv = kv_of(user, std::min((page + 1) * page_size, user.tokens.size()));
            if (page < num_cached / page_size)
                ASSERT_EQ(memory(page, user.blocks[page]), kv);
            else
                memory(page, user.blocks[page]) = kv;
        }
    }

    void start() {
        User user;
        user.salt = pick(0, 3) == 0 ? "b" : "a";
        user.tokens = grow({}, pick(1, 5 * options_.page_size));
        const PrefixCache::Match expected = model_.match(user.salt, user.tokens);
        const PrefixCache::Match found = cache_.match(user.salt, user.tokens);
        ASSERT_EQ(found.num_tokens, expected.num_tokens);
        ASSERT_EQ(found.num_lower_tokens, expected.num_lower_tokens);
        ASSERT_EQ(cache_.acquire(user.salt, user.tokens, user.blocks), expected.num_tokens);
        model_.touch_lower(user.salt, user.tokens);
        for (const Key& key : model_.keys(user.salt, user.tokens)) {
            if (static_cast<int>(key.second.size()) > expected.num_tokens) break;
            ASSERT_EQ(user.blocks[key.second.size() / options_.page_size - 1],
                      model_.pages.at(key).block);
        }
        users_.push_back(user);
        if (!extend(users_.back(), kv_.blocks_for(static_cast<int64_t>(user.tokens.size()))))
            return drop(static_cast<int>(users_.size()) - 1);
        const int num_restored = restore(users_.back(), expected.num_tokens);
        copy();
        compute(users_.back(), expected.num_tokens + num_restored);
    }

    int restore(const User& user, int num_acquired) {
        if (pick(0, 4) == 0) return 0;
        reads_until_bad_ = pick(0, 1) == 0 ? pick(1, 2) : 0;
        file_is_off_ |= pick(0, 299) == 0;
        int num_tokens = 0, num_reads = 0;
        bool lost = false;
        for (const Key& key : model_.keys(user.salt, user.tokens)) {
            if (static_cast<int>(key.second.size()) <= num_acquired) continue;
            const auto page = model_.pages.find(key);
            if (page == model_.pages.end() || page->second.lost) break;
            if (page->second.tier == Tier::kFile) {
                ++num_reads;
                lost |= page->second.lost = file_is_off_ || num_reads == reads_until_bad_;
            }
            if (lost) break;
            page->second.come(user.blocks[key.second.size() / options_.page_size - 1]);
            num_tokens += options_.page_size;
        }
        num_lost_ += lost;
        if (num_reads > 0 && file_is_off_) model_.lose_file();
        EXPECT_EQ(cache_.restore(user.salt, user.tokens, user.blocks, num_acquired), num_tokens);
        return num_tokens;
    }

    void lengthen(User& user) {
        User longer = user;
        longer.tokens = grow(user.tokens, pick(1, options_.page_size));
        const int num_pages = static_cast<int>(user.tokens.size()) / options_.page_size;
        if (!extend(user, kv_.blocks_for(static_cast<int64_t>(longer.tokens.size())))) return;
        user.tokens = std::move(longer.tokens);
        copy();
        compute(user, num_pages * options_.page_size);
    }

    void insert(User& user, bool later) {
        const std::vector<int32_t> before = user.blocks;
        const int present = model_.match(user.salt, user.tokens).num_tokens;
        std::vector<PrefixCache::Placed> swapped;
        ASSERT_EQ(cache_.insert(user.salt, user.tokens, user.blocks, later ? &swapped : nullptr),
                  present);
        size_t num_swapped = 0, page = 0;
        for (const Key& key : model_.keys(user.salt, user.tokens)) {
            Model::Page& known = model_.pages.try_emplace(key).first->second;
            if (known.block == -1) known.come(before[page]);
            ASSERT_EQ(user.blocks[page], known.block);
            if (known.block != before[page] && later) {
                ASSERT_LT(num_swapped, swapped.size());
                ASSERT_EQ(swapped[num_swapped++],
                          PrefixCache::Placed(model_.rank(key), before[page]));
            }
            ++page;
        }
        ASSERT_EQ(num_swapped, swapped.size());
        replaced_.insert(replaced_.end(), swapped.begin(), swapped.end());
    }

    void drop(int which) {
        User user = users_[which];
        users_.erase(users_.begin() + which);
        // Pages of a prefix that it computed itself and never inserted are not its own in the tree.
        size_t page = 0;
        User held = user;
        for (const Key& key : model_.keys(user.salt, user.tokens)) {
            const auto it = model_.pages.find(key);
            if (page == user.blocks.size() || it == model_.pages.end() ||
                it->second.block != user.blocks[page])
                break;
            ++page;
        }
        held.tokens.resize(page * options_.page_size);
        model_.let_go(held);
        kv_.release(user.blocks);
    }

    void settle() {
        for (const auto& [rank, block] : replaced_) kv_.release(rank, block);
        replaced_.clear();
    }

    void flush() {
        const auto num_forgotten = std::erase_if(model_.pages, [this](const auto& page) {
            return page.second.block == -1 || !model_.used(page.first, users_);
        });
        ASSERT_EQ(cache_.flush(), static_cast<int64_t>(num_forgotten) * options_.page_size);
    }

    // Every block has the holders that it should have, and the counters are what a count gives.
    void check() {
        std::map<PrefixCache::Placed, int> holders;
        for (const User& user : users_)
            for (size_t b = 0; b < user.blocks.size(); ++b)
                ++holders[{static_cast<int>(b) % options_.cp, user.blocks[b]}];
        for (const PrefixCache::Placed& placed : replaced_) ++holders[placed];
        int64_t num_evictable = 0, num_in[3] = {};
        for (const auto& [key, page] : model_.pages) {
            const PrefixCache::Match found = cache_.match(key.first, key.second);
            const PrefixCache::Match expected = model_.match(key.first, key.second);
            ASSERT_EQ(found.num_tokens, expected.num_tokens);
            ASSERT_EQ(found.num_lower_tokens, expected.num_lower_tokens);
            ++num_in[static_cast<int>(page.tier)];
            if (page.block == -1) continue;
            const int num_holders = ++holders[{model_.rank(key), page.block}];
            num_evictable += num_holders == 1;
            ASSERT_EQ(num_holders == 1, !model_.used(key, users_));
        }
        for (int rank = 0; rank < options_.cp; ++rank)
            for (int block = 0; block < options_.num_blocks; ++block)
                ASSERT_EQ(kv_.pool(rank).num_holders(block), (holders[{rank, block}]));
        ASSERT_EQ(cache_.evictable_tokens(), num_evictable * options_.page_size);
        for (int tier = 0; tier < 3; ++tier)
            ASSERT_EQ(cache_.tokens_in(static_cast<Tier>(tier)), num_in[tier] * options_.page_size);
        ASSERT_EQ(cache_.lost_pages(), num_lost_);
    }

    KvBlocksOptions options_;
    std::mt19937 random_;
    KvBlocks kv_;
    PrefixCache cache_;
    Model model_;
    std::vector<User> users_;
    std::vector<PrefixCache::Placed> replaced_;
    std::map<std::tuple<Tier, int, int32_t>, Key> memory_;  // what is in each block and slot
    int reads_until_bad_ = 0;
    bool file_is_off_ = false;
    uint64_t num_lost_ = 0;
};

TEST(PrefixCacheProperty, DoesWhatTheModelDoes) {
    uint64_t num_lost = 0, num_from_file = 0;
    for (uint32_t seed = 0; seed < 300; ++seed) {
        std::mt19937 random(seed);
        KvBlocksOptions options{.num_blocks = 2 + static_cast<int>(random() % 14),
                                .page_size = 1 + static_cast<int>(random() % 3),
                                .cp = 1 + static_cast<int>(seed % 3)};
        if (seed % 2 == 1) options.lower.num_host_slots = 1 + static_cast<int>(random() % 12);
        if (seed % 4 >= 2) options.lower.num_file_slots = 1 + static_cast<int>(random() % 12);
        Workload workload(seed, options);
        workload.run(150);
        ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
        num_lost += workload.num_lost();
        num_from_file += workload.num_from_file();
    }
    EXPECT_GT(num_lost, 20u);
    EXPECT_GT(num_from_file, 100u);
}

}  // namespace
}  // namespace aerie::cache
