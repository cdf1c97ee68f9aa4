// For tests: what PrefixCache should do, without lists and hashes: a map from the prefix to its place
// and last use.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cache/prefix_cache.h"

namespace aerie::cache {

using Tokens = std::vector<int32_t>;
using Key = std::pair<std::string, Tokens>;  // salt, all tokens up to the page's end

struct User {
    std::string salt;
    Tokens tokens;
    std::vector<int32_t> blocks;
};

class Model {
  public:
    explicit Model(const KvBlocksOptions& options)
        : options_(options),
          num_slots_{0, options.lower.num_host_slots, options.lower.num_file_slots} {}

    struct Page {
        int32_t block = -1;  // -1: in a lower tier
        int64_t last_use = 0;
        Tier tier = Tier::kDevice;
        bool lost = false;

        void come(int32_t into) { block = into, tier = Tier::kDevice, lost = false; }
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
            if (page == pages.end() || page->second.lost) break;
            (page->second.block >= 0 ? found.num_tokens : found.num_lower_tokens) +=
                options_.page_size;
        }
        return found;
    }
    void touch_lower(const std::string& salt, const Tokens& tokens) {
        ++now_;
        for (const Key& key : keys(salt, tokens)) {
            const auto page = pages.find(key);
            if (page == pages.end() || page->second.lost) break;
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
                   page.second.tier == pages.at(key).tier &&
                   std::equal(key.second.begin(), key.second.end(), tokens.begin());
        });
    }
    // The unused leaf of a tier whose last use is the oldest; nullptr: none.
    const Key* victim(Tier tier, const std::vector<User>& users) const {
        const Key* oldest = nullptr;
        for (const auto& [key, page] : pages) {
            if (page.tier != tier || !is_leaf(key)) continue;
            if (tier == Tier::kDevice && used(key, users)) continue;
            if (!oldest || page.last_use < pages.at(*oldest).last_use) oldest = &key;
        }
        return oldest;
    }
    bool is_full(Tier tier, int of_rank) const {
        return num_slots_[static_cast<int>(tier)] <=
               std::count_if(pages.begin(), pages.end(), [&](const auto& page) {
                   return page.second.tier == tier && rank(page.first) == of_rank;
               });
    }
    // Moves a tier's victim to the next one that has slots, or forgets it. Returns its rank, or -1.
    int evict_one(Tier tier, const std::vector<User>& users) {
        const Key* found = victim(tier, users);
        if (!found) return -1;
        const Key key = *found;
        for (Tier to = below(tier);; to = below(to)) {
            if (to == Tier::kDevice) break;
            if (num_slots_[static_cast<int>(to)] == 0) continue;
            while (is_full(to, rank(key))) EXPECT_NE(evict_one(to, users), -1);
            pages.at(key) = {.last_use = ++now_, .tier = to};
            return rank(key);
        }
        pages.erase(key);
        return rank(key);
    }
    void lose_file() {
        std::erase_if(pages, [](const auto& page) { return page.second.tier == Tier::kFile; });
        num_slots_[2] = 0;
    }

  private:
    // kDevice: there is none.
    static Tier below(Tier tier) { return static_cast<Tier>((static_cast<int>(tier) + 1) % 3); }

    KvBlocksOptions options_;
    int num_slots_[3];  // [Tier]
    int64_t now_ = 0;
};

}  // namespace aerie::cache
