// Random sequences come, share prefixes, grow, end and are dropped, with the real cache beside a
// model that knows nothing of lists and hashes: a map from the prefix to its block and last use.
// The memory of the blocks and of the host is there too, so that copies can go wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "cache/prefix_cache.h"

namespace aerie::cache {
namespace {

using Tokens = std::vector<int32_t>;
using Key = std::pair<std::string, Tokens>;  // salt, all tokens up to the page's end

struct User {
    std::string salt;
    Tokens tokens;
    std::vector<int32_t> blocks;
};

class Model {
  public:
    Model(const KvBlocksOptions& options, int num_host_slots)
        : options_(options), num_host_slots_(num_host_slots) {}

    struct Page {
        int32_t block = -1;  // -1: in host memory
        int64_t last_use = 0;
    };
    std::map<Key, Page> pages;

    int rank(const Key& key) const {
        return (static_cast<int>(key.second.size()) / options_.page_size - 1) % options_.cp;
    }
    std::vector<Key> keys(const std::string& salt, const Tokens& tokens) const {
        std::vector<Key> result;
        for (size_t end = options_.page_size; end <= tokens.size(); end += options_.page_size)
            result.push_back({salt, Tokens(tokens.begin(), tokens.begin() + end)});
        return result;
    }
    PrefixCache::Match match(const std::string& salt, const Tokens& tokens) const {
        PrefixCache::Match found;
        for (const Key& key : keys(salt, tokens)) {
            const auto page = pages.find(key);
            if (page == pages.end()) break;
            (page->second.block >= 0 ? found.num_tokens : found.num_host_tokens) +=
                options_.page_size;
        }
        return found;
    }
    void touch_host(const std::string& salt, const Tokens& tokens) {
        ++now_;
        for (const Key& key : keys(salt, tokens)) {
            const auto page = pages.find(key);
            if (page == pages.end()) break;
            if (page->second.block == -1) page->second.last_use = now_;
        }
    }
    void let_go(const User& user) {
        ++now_;
        for (const Key& key : keys(user.salt, user.tokens))
            if (const auto it = pages.find(key); it != pages.end()) it->second.last_use = now_;
    }
    bool used(const Key& key, const std::vector<User>& users) const {
        return std::any_of(users.begin(), users.end(), [&](const User& user) {
            const size_t page = key.second.size() / options_.page_size - 1;
            return user.salt == key.first && user.blocks.size() > page &&
                   user.blocks[page] == pages.at(key).block &&
                   std::equal(
                       key.second.begin(), key.second.end(), user.tokens.begin(),
                       user.tokens.begin() + std::min(user.tokens.size(), key.second.size()));
        });
    }
    // No page of the same tier continues it.
    bool is_leaf(const Key& key) const {
        return std::none_of(pages.begin(), pages.end(), [&](const auto& page) {
            const auto& [salt, tokens] = page.first;
            return salt == key.first && tokens.size() > key.second.size() &&
                   (page.second.block >= 0) == (pages.at(key).block >= 0) &&
                   std::equal(key.second.begin(), key.second.end(), tokens.begin());
        });
    }
    // The unused leaf of a tier whose last use is the oldest; nullptr: none.
    const Key* victim(bool of_host, const std::vector<User>& users) const {
        const Key* oldest = nullptr;
        for (const auto& [key, page] : pages) {
            if ((page.block == -1) != of_host || !is_leaf(key)) continue;
            if (!of_host && used(key, users)) continue;
            if (!oldest || page.last_use < pages.at(*oldest).last_use) oldest = &key;
        }
        return oldest;
    }
    bool host_is_full(int of_rank) const {
        return num_host_slots_ <= std::count_if(pages.begin(), pages.end(), [&](const auto& page) {
                   return page.second.block == -1 && rank(page.first) == of_rank;
               });
    }
    // Moves the victim to host memory, or forgets it.
    bool evict_one(const std::vector<User>& users, int& rank_freed) {
        const Key* found = victim(false, users);
        if (!found) return false;
        const Key key = *found;
        rank_freed = rank(key);
        while (host_is_full(rank_freed)) {
            const Key* oldest = victim(true, users);
            if (!oldest) {
                pages.erase(key);
                return true;
            }
            pages.erase(Key(*oldest));
        }
        pages.at(key) = {-1, ++now_};
        return true;
    }

  private:
    KvBlocksOptions options_;
    int num_host_slots_;
    int64_t now_ = 0;
};

class Workload {
  public:
    Workload(uint32_t seed, const KvBlocksOptions& options, int num_host_slots)
        : options_(options),
          random_(seed),
          kv_(options),
          cache_(kv_, num_host_slots),
          model_(options, num_host_slots) {}

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
                int freed = -1;
                EXPECT_TRUE(model_.evict_one(users_, freed));
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
        return device_[{static_cast<int>(page) % options_.cp, block}];
    }
    void copy() {
        for (const KvCopy& copy : cache_.take_copies()) {
            Key& block = device_[{copy.cp_rank, copy.block}];
            Key& slot = host_[{copy.cp_rank, copy.slot}];
            (copy.to_host ? slot : block) = copy.to_host ? block : slot;
        }
    }
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
        ASSERT_EQ(found.num_host_tokens, expected.num_host_tokens);
        ASSERT_EQ(cache_.acquire(user.salt, user.tokens, user.blocks), expected.num_tokens);
        model_.touch_host(user.salt, user.tokens);
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
        int num_tokens = 0;
        for (const Key& key : model_.keys(user.salt, user.tokens)) {
            if (static_cast<int>(key.second.size()) <= num_acquired) continue;
            const auto page = model_.pages.find(key);
            if (page == model_.pages.end()) break;
            page->second.block = user.blocks[key.second.size() / options_.page_size - 1];
            num_tokens += options_.page_size;
        }
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
            int32_t& block = model_.pages.try_emplace(key).first->second.block;
            if (block == -1) block = before[page];
            ASSERT_EQ(user.blocks[page], block);
            if (block != before[page] && later) {
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
        int64_t num_evictable = 0, num_on_host = 0;
        for (const auto& [key, page] : model_.pages) {
            const PrefixCache::Match found = cache_.match(key.first, key.second);
            ASSERT_EQ(found.num_tokens + found.num_host_tokens,
                      static_cast<int>(key.second.size()));
            if (page.block == -1) {
                ++num_on_host;
                continue;
            }
            const int num_holders = ++holders[{model_.rank(key), page.block}];
            num_evictable += num_holders == 1;
            ASSERT_EQ(num_holders == 1, !model_.used(key, users_));
        }
        for (int rank = 0; rank < options_.cp; ++rank)
            for (int block = 0; block < options_.num_blocks; ++block)
                ASSERT_EQ(kv_.pool(rank).num_holders(block), (holders[{rank, block}]));
        const int64_t page_size = options_.page_size;
        const auto num_pages = static_cast<int64_t>(model_.pages.size());
        ASSERT_EQ(cache_.evictable_tokens(), num_evictable * page_size);
        ASSERT_EQ(cache_.cached_tokens(), (num_pages - num_on_host) * page_size);
        ASSERT_EQ(cache_.host_tokens(), num_on_host * page_size);
    }

    KvBlocksOptions options_;
    std::mt19937 random_;
    KvBlocks kv_;
    PrefixCache cache_;
    Model model_;
    std::vector<User> users_;
    std::vector<PrefixCache::Placed> replaced_;
    std::map<PrefixCache::Placed, Key> device_, host_;  // what is in each block and slot
};

TEST(PrefixCacheProperty, DoesWhatTheModelDoes) {
    for (uint32_t seed = 0; seed < 300; ++seed) {
        std::mt19937 random(seed);
        const KvBlocksOptions options{.num_blocks = 2 + static_cast<int>(random() % 14),
                                      .page_size = 1 + static_cast<int>(random() % 3),
                                      .cp = 1 + static_cast<int>(seed % 3)};
        const int num_host_slots = seed % 2 == 0 ? 0 : 1 + static_cast<int>(random() % 12);
        Workload(seed, options, num_host_slots).run(150);
        ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
    }
}

}  // namespace
}  // namespace aerie::cache
