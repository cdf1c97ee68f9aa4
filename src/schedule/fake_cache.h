// For tests: a KV cache that stores in each slot a hash of what its KV depends on.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "cache/kv_blocks.h"
#include "cache/prefix_cache.h"
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

    // In order, as the ranks would.
    void copy(const std::vector<cache::KvCopy>& copies) {
        for (const cache::KvCopy& copy : copies) {
            const auto block = slots_.begin() + first_slot(copy.cp_rank, copy.block);
            auto& host = host_[{copy.cp_rank, copy.slot}];
            if (copy.to_host)
                host.assign(block, block + options_.page_size);
            else
                std::copy(host.begin(), host.end(), block);
        }
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
    std::map<std::pair<int, int32_t>, std::vector<uint64_t>> host_;  // (cp rank, slot)
};

}  // namespace aerie::schedule
