// For tests: the memory of a KV cache and of its lower tiers, in which each slot holds a hash of what
// its KV depends on.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/hash.h"
#include "cache/kv_blocks.h"
#include "schedule/sequence.h"

namespace aerie::schedule {

// What the KV of each position depends on: the salt and all tokens up to it.
inline std::vector<uint64_t> fake_kv(const std::string& salt, const std::vector<int32_t>& tokens) {
    std::vector<uint64_t> result;
    uint64_t hash = hash_bytes(salt.data(), salt.size(), 3);
    for (const int32_t token : tokens) result.push_back(hash = mix64(hash ^ mix64(token)));
    return result;
}

class FakeCache {
  public:
    explicit FakeCache(const cache::KvBlocksOptions& options)
        : options_(options),
          slots_(static_cast<size_t>(options.cp) * options.num_blocks * options.page_size, 0) {}

    // In order, as the ranks would. Every eleventh page that comes out of a file has been damaged
    // there.
    cache::CopiesMade copy(std::span<const cache::KvCopy> copies) {
        cache::CopiesMade made{.num_good = copies.size()};
        for (size_t i = 0; i < copies.size(); ++i) {
            const cache::KvCopy& copy = copies[i];
            std::vector<uint64_t> page = lower_[{copy.from, copy.cp_rank, copy.source}];
            if (copy.from == cache::Tier::kDevice) {
                const auto block = slots_.begin() + first_slot(copy.cp_rank, copy.source);
                page.assign(block, block + options_.page_size);
            } else if (copy.from == cache::Tier::kFile && ++num_read_ % 11 == 0) {
                made.num_good = std::min(made.num_good, i);
                page.assign(options_.page_size, 0);
            }
            if (copy.to == cache::Tier::kDevice)
                std::copy(page.begin(), page.end(),
                          slots_.begin() + first_slot(copy.cp_rank, copy.target));
            else
                lower_[{copy.to, copy.cp_rank, copy.target}] = page;
        }
        return made;
    }

    void write(const Sequence& sequence, int position, uint64_t kv) {
        slots_[slot(sequence, position)] = kv;
    }
    void check(const Sequence& sequence, int position, uint64_t kv) const {
        ASSERT_EQ(slots_[slot(sequence, position)], kv)
            << "request " << sequence.id << " finds something else at position " << position;
    }

    // [num_blocks, page_size] of one cp rank.
    std::span<uint64_t> pool(int cp_rank) {
        const size_t size = slots_.size() / options_.cp;
        return std::span(slots_).subspan(cp_rank * size, size);
    }

  private:
    size_t slot(const Sequence& sequence, int position) const {
        const int page = position / options_.page_size;
        return first_slot(page % options_.cp, sequence.blocks.at(page)) +
               position % options_.page_size;
    }
    size_t first_slot(int cp_rank, int32_t block) const {
        return (static_cast<size_t>(cp_rank) * options_.num_blocks + block) * options_.page_size;
    }

    cache::KvBlocksOptions options_;
    std::vector<uint64_t> slots_;
    std::map<std::tuple<cache::Tier, int, int32_t>, std::vector<uint64_t>> lower_;
    int num_read_ = 0;  // out of files
};

}  // namespace aerie::schedule
