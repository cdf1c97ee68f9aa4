// For tests: a model whose next token is a hash of all tokens before it. A step that reads KV that it
// should not, or misses what it needs, is found at once.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/hash.h"
#include "cache/kv_blocks.h"
#include "schedule/fake_cache.h"
#include "schedule/plan.h"
#include "schedule/scheduler.h"

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

// A replica's steps that are planned and have not ended, oldest first.
class FakeReplica {
  public:
    // num_drafts: the most that are drafted for a sequence.
    explicit FakeReplica(const cache::KvBlocksOptions& options, int num_drafts = 0)
        : cp_(options.cp), page_size_(options.page_size), num_drafts_(num_drafts), cache(options) {}

    size_t num_running() const { return steps_.size(); }

    // What the new step writes nobody else holds, and it shares no block with a step that has not
    // ended where one of the two writes it.
    void start(Plan plan, const cache::KvBlocks& kv) {
        Step step{std::move(plan), {}};
        for (const auto* entries : {&step.plan.prefill, &step.plan.decode}) {
            for (const PlanEntry& entry : *entries) {
                const std::vector<int32_t>& blocks = entry.sequence->blocks;
                const int end = (entry.first + entry.num_tokens - 1) / page_size_;
                ASSERT_LT(end, static_cast<int>(blocks.size()));
                for (int b = 0; b <= end; ++b) {
                    const bool writes = b >= entry.first / page_size_;
                    if (writes) {
                        ASSERT_EQ(kv.pool(b % cp_).num_holders(blocks[b]), 1);
                    }
                    step.uses.push_back({b % cp_, blocks[b], entry.sequence, writes});
                }
            }
        }
        std::sort(step.uses.begin(), step.uses.end());
        for (const Step& other : steps_) {
            for (const Use& use : step.uses) {
                const auto it = std::lower_bound(other.uses.begin(), other.uses.end(),
                                                 Use{use.cp_rank, use.block, nullptr, false});
                for (auto at = it; at != other.uses.end() && at->same_block(use); ++at)
                    ASSERT_TRUE(at->sequence == use.sequence || !(at->writes || use.writes))
                        << "block " << use.block << " is used twice";
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
        const std::vector<uint64_t> kv = fake_kv(sequence.cache_salt, tokens);
        for (int p = entry.first; p < known; ++p) cache.write(sequence, p, kv[p]);
        for (int p = 0; p < known; ++p) cache.check(sequence, p, kv[p]);
        if (!entry.sample) return;
        ASSERT_EQ(known, static_cast<int>(tokens.size()));
        const int num_drafts = entry.first + entry.num_tokens - known;
        const int num_right =
            num_drafts == 0 ? 0 : static_cast<int>(mix64(known) % (num_drafts + 1));
        const size_t begin = result.tokens.size();
        for (int i = 0; i <= num_right; ++i) {
            tokens.push_back(fake_next(tokens, tokens.size()));
            result.tokens.push_back(tokens.back());
            if (i < num_right)
                cache.write(sequence, known + i, fake_kv(sequence.cache_salt, tokens).back());
        }
        result.advances.push_back({entry.sequence, std::span(result.tokens).subspan(begin)});
        // What drafting writes must have a block, as far as the sequence may go.
        if (num_drafts_ == 0) return;
        const int end = std::min<int>(known + num_drafts + num_drafts_,
                                      sequence.num_prompt + sequence.output_limit);
        if (entry.first >= sequence.prefill_end) {
            ASSERT_GE(static_cast<int>(sequence.blocks.size()) * page_size_, end);
        }
        entry.sequence->drafts.assign(mix64(known + 1) % (num_drafts_ + 1), 7);
    }

    struct Use {
        int cp_rank;
        int32_t block;
        const Sequence* sequence;
        bool writes;
        bool same_block(const Use& other) const {
            return cp_rank == other.cp_rank && block == other.block;
        }
        bool operator<(const Use& other) const {
            return cp_rank != other.cp_rank ? cp_rank < other.cp_rank : block < other.block;
        }
    };
    struct Step {
        Plan plan;
        std::vector<Use> uses;  // by block
    };
    int cp_, page_size_, num_drafts_;
    std::vector<Step> steps_;
  public:
    FakeCache cache;
};

// With the copies of `replica`, which outlives the scheduler that gets these.
inline SchedulerOptions copied_by(FakeReplica& replica, SchedulerOptions options) {
    options.kv.lower.make_copies = [&replica](std::span<const cache::KvCopy> copies) {
        return replica.cache.copy(copies);
    };
    return options;
}

}  // namespace aerie::schedule
