// What a replica's prefix cache probably holds, as the frontend can know it: pages of tokens that
// were sent to the replica or came from it, each known by a hash of itself and all before it.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace aerie::frontend {

// The hashes of a text's full pages; grows with the text, O(1) a token. Equal hashes: the same
// tokens from the beginning, under the same salt. 8 bytes a page.
class PageChain {
  public:
    // page_size: tokens. Texts of different salts share no page.
    explicit PageChain(int page_size, std::string_view salt = {});
    void append(std::span<const int32_t> tokens);

    std::span<const uint64_t> pages() const { return pages_; }
    int page_size() const { return page_size_; }
    int64_t num_tokens() const { return num_tokens_; }

  private:
    int page_size_;
    int64_t num_tokens_ = 0;
    uint64_t hash_;  // of the salt and all tokens so far
    std::vector<uint64_t> pages_;
};

// The pages of one replica, the least recently used forgotten first, as the replica does it. No page
// is kept without those before it: inserting touches a chain from its end to its beginning. About
// 100 bytes a page. Not thread-safe.
class PrefixIndex {
  public:
    explicit PrefixIndex(int64_t max_pages) : max_pages_(max_pages) {}

    // Leading pages that are known; O(log pages), for known pages have no gaps.
    int64_t match(std::span<const uint64_t> pages) const;
    void insert(std::span<const uint64_t> pages);
    void clear();
    int64_t num_pages() const { return static_cast<int64_t>(places_.size()); }

  private:
    const int64_t max_pages_;
    std::list<uint64_t> recent_;  // the most recently used first
    std::unordered_map<uint64_t, std::list<uint64_t>::iterator> places_;
};

}  // namespace aerie::frontend
