// For tests: a model whose next token is a hash of all tokens before it, and a KV cache that stores
// which token of which request stands in each slot. A step that reads what it should not, or misses
// what it needs, is found at once.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "base/hash.h"
#include "cache/kv_blocks.h"
#include "schedule/plan.h"

namespace aerie::schedule {

constexpr int32_t kFakeEos = 2;

// A token in 2 … 31; about one of 30 is eos.
inline int32_t fake_next(const std::vector<int32_t>& tokens, size_t num_tokens) {
    return 2 +
           static_cast<int32_t>(hash_bytes(tokens.data(), num_tokens * sizeof(int32_t), 5) % 30);
}

// What the request gives when it runs alone, of at most `limit` tokens.
inline std::vector<int32_t> fake_answer(const Request& request, int limit) {
    std::vector<int32_t> tokens = request.prompt, output;
    while (static_cast<int>(output.size()) < limit) {
        output.push_back(fake_next(tokens, tokens.size()));
        tokens.push_back(output.back());
        if (output.back() == kFakeEos && !request.sampling.ignore_eos) break;
    }
    return output;
}

class FakeCache {
  public:
    explicit FakeCache(const cache::KvBlocksOptions& options) : options_(options) {}

    void write(const Sequence& sequence, int position, int32_t token) {
        slots_[slot(sequence, position)] = {sequence.id, position, token};
    }
    void check(const Sequence& sequence, int position) const {
        const auto it = slots_.find(slot(sequence, position));
        ASSERT_TRUE(it != slots_.end());
        const Slot expected{sequence.id, position, sequence.tokens.at(position)};
        ASSERT_TRUE(it->second == expected)
            << "request " << sequence.id << " position " << position << " finds request "
            << it->second.id << " position " << it->second.position;
    }

  private:
    struct Slot {
        RequestId id;
        int position;
        int32_t token;
        bool operator==(const Slot&) const = default;
    };
    using Place = std::pair<int, int>;  // cp rank, slot

    Place slot(const Sequence& sequence, int position) const {
        const int page = position / options_.page_size;
        return {page % options_.cp,
                sequence.blocks.at(page) * options_.page_size + position % options_.page_size};
    }

    cache::KvBlocksOptions options_;
    std::map<Place, Slot> slots_;
};

// A replica's steps that are planned and have not ended, oldest first.
class FakeReplica {
  public:
    FakeReplica(const cache::KvBlocksOptions& options) : cp_(options.cp), cache(options) {}

    size_t num_running() const { return steps_.size(); }

    // No block of the new step may belong to another request in a step that has not ended.
    void start(Plan plan) {
        Step step{std::move(plan), {}};
        for (const auto* entries : {&step.plan.prefill, &step.plan.decode}) {
            for (const PlanEntry& entry : *entries) {
                const std::vector<int32_t>& blocks = entry.sequence->blocks;
                for (size_t b = 0; b < blocks.size(); ++b)
                    step.owners.insert({{static_cast<int>(b) % cp_, blocks[b]}, entry.sequence});
            }
        }
        for (const Step& other : steps_) {
            for (const auto& [block, owner] : step.owners) {
                const auto it = other.owners.find(block);
                ASSERT_TRUE(it == other.owners.end() || it->second == owner)
                    << "block " << block.second << " is used twice";
            }
        }
        steps_.push_back(std::move(step));
    }

    // Computes the oldest step, as the engine would, and returns it with its tokens.
    struct Result {
        Plan plan;
        std::vector<int32_t> tokens;  // of the entries that sample and have not ended
        std::vector<Advance> advances;
    };
    void finish(Result& result) {
        result.plan = std::move(steps_.front().plan);
        steps_.erase(steps_.begin());
        result.tokens.reserve(1000);  // the advances point into it
        for (const auto* entries : {&result.plan.prefill, &result.plan.decode}) {
            for (const PlanEntry& entry : *entries) {
                const Sequence& sequence = *entry.sequence;
                if (sequence.state == State::kEnded) continue;  // computes for nobody
                compute(entry, result);
                if (::testing::Test::HasFatalFailure()) return;
            }
        }
    }

  private:
    // Writes the entry's positions, checks what it reads, and samples: one token, and with drafts
    // (whose tokens are not in the sequence yet) as many as a hash says were right.
    void compute(const PlanEntry& entry, Result& result) {
        const Sequence& sequence = *entry.sequence;
        std::vector<int32_t> tokens = sequence.tokens;
        const int known = std::min<int>(entry.first + entry.num_tokens, tokens.size());
        for (int p = entry.first; p < known; ++p) cache.write(sequence, p, tokens[p]);
        for (int p = 0; p < known; ++p) cache.check(sequence, p);
        if (!entry.sample) return;
        ASSERT_EQ(known, static_cast<int>(tokens.size()));
        const int num_drafts = entry.first + entry.num_tokens - known;
        const int num_right =
            num_drafts == 0 ? 0 : static_cast<int>(mix64(known) % (num_drafts + 1));
        const size_t begin = result.tokens.size();
        for (int i = 0; i <= num_right; ++i) {
            tokens.push_back(fake_next(tokens, tokens.size()));
            result.tokens.push_back(tokens.back());
            if (i < num_right) cache.write(sequence, known + i, tokens.back());
        }
        result.advances.push_back({entry.sequence, std::span(result.tokens).subspan(begin)});
    }

    struct Step {
        Plan plan;
        std::map<std::pair<int, int>, const Sequence*> owners;  // (cp rank, block)
    };
    int cp_;
    std::vector<Step> steps_;

  public:
    FakeCache cache;
};

}  // namespace aerie::schedule
