#include "frontend/prefix_index.h"

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"

namespace aerie::frontend {

PageChain::PageChain(int page_size, std::string_view salt)
    : page_size_(page_size), hash_(hash_bytes(salt.data(), salt.size())) {
    CHECK(page_size > 0, "page_size is {}", page_size);
}

void PageChain::append(std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) {
        hash_ = mix64(hash_ ^ static_cast<uint32_t>(token)) + 0x9e3779b97f4a7c15u;
        if (++num_tokens_ % page_size_ == 0) pages_.push_back(hash_);
    }
}

int64_t PrefixIndex::match(std::span<const uint64_t> pages) const {
    const auto unknown = std::partition_point(
        pages.begin(), pages.end(), [this](uint64_t page) { return places_.contains(page); });
    return unknown - pages.begin();
}

void PrefixIndex::insert(std::span<const uint64_t> pages) {
    // Of a chain that is too long for the index its beginning stays.
    const auto kept = pages.first(std::min<size_t>(pages.size(), max_pages_));
    for (auto page = kept.rbegin(); page != kept.rend(); ++page) {
        const auto [place, added] = places_.try_emplace(*page);
        if (added) {
            recent_.push_front(*page);
            place->second = recent_.begin();
        } else {
            recent_.splice(recent_.begin(), recent_, place->second);
        }
    }
    while (num_pages() > max_pages_) {
        places_.erase(recent_.back());
        recent_.pop_back();
    }
}

void PrefixIndex::clear() {
    recent_.clear();
    places_.clear();
}

}  // namespace aerie::frontend
