// What a sequence gets from the prefix cache when it gets its blocks, and what it leaves there.
#include <algorithm>

#include "base/check.h"
#include "base/fault.h"
#include "schedule/scheduler.h"

namespace aerie::schedule {

// The blocks of its longest cached prefix. At least its last token is computed: its logits are
// needed.
void Scheduler::take_cached_prefix(Sequence& sequence) {
    sequence.num_cached = 0;
    if (cache_) {
        const std::span<const int32_t> tokens(sequence.tokens);
        sequence.num_cached =
            cache_->acquire(sequence.cache_salt, sequence.matchable(), sequence.blocks);
        if (fault_planted(Fault::kMatchTooLong)) [[unlikely]] {
            const int longer = sequence.num_cached + kv_.page_size();
            if (longer < static_cast<int>(tokens.size())) sequence.num_cached = longer;
        }
    }
    sequence.num_planned = sequence.num_computed = sequence.num_cached;
}

// The blocks of all its tokens, which fit. What follows its cached prefix in lower tiers comes back
// into them.
void Scheduler::get_blocks(Sequence& sequence) {
    const std::span<const int32_t> tokens(sequence.tokens);
    CHECK(kv_.extend(sequence.blocks, kv_.blocks_for(static_cast<int64_t>(tokens.size()))),
          "request {}: {} tokens, {} free", sequence.id, tokens.size(), kv_.free_tokens());
    if (!cache_) return;
    num_device_hits_ += sequence.num_cached;
    sequence.num_cached += cache_->restore(sequence.cache_salt, sequence.matchable(),
                                           sequence.blocks, sequence.num_cached);
    sequence.num_planned = sequence.num_computed = sequence.num_cached;
}

int Scheduler::cached_tokens(const Sequence& sequence) const {
    if (!cache_) return 0;
    return cache_->match(sequence.cache_salt, sequence.matchable()).num_tokens;
}

// It does not start after all.
void Scheduler::give_back(Sequence& sequence) {
    kv_.release(sequence.blocks);
    sequence.num_cached = sequence.num_planned = sequence.num_computed = 0;
}

// The whole pages that it has computed are in the prefix cache from now on.
void Scheduler::keep_prefix(Sequence& sequence) {
    if (!cache_) return;
    cache_->insert(sequence.cache_salt,
                   std::span(sequence.tokens).first(sequence.num_computed), sequence.blocks,
                   &sequence.replaced);
    sequence.replaced_step = sequence.last_step;
    drop_replaced(sequence);
}

void Scheduler::drop_replaced(Sequence& sequence) {
    if (sequence.replaced.empty() || sequence.held || sequence.replaced_step > ended_steps_) return;
    for (const auto& [rank, block] : sequence.replaced) kv_.release(rank, block);
    sequence.replaced.clear();
}

std::vector<cache::KvCopy> Scheduler::take_copies() {
    return cache_ ? cache_->take_copies() : std::vector<cache::KvCopy>();
}

bool Scheduler::flush_cache() {
    if (!idle()) return false;
    if (cache_) cache_->flush();
    return true;
}

}  // namespace aerie::schedule
