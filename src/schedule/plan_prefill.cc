// The prefill half of Scheduler::plan(): which prompts, and how much of them, the next step takes.
#include <algorithm>

#include "base/check.h"
#include "schedule/scheduler.h"

namespace aerie::schedule {
namespace {
// Of what a request may still gain, the part that admission reckons with (SGLang's clip).
constexpr int kMaxGrowth = 4096;
}  // namespace

// Tokens of KV that a sequence may still need beside what it has.
int64_t Scheduler::growth(const Sequence& sequence) const {
    if (options_.flavour == Flavour::kPrefill) return 0;
    return std::min(sequence.num_remaining(), kMaxGrowth);
}

// Tokens that admission may give away: what is free, without the part of the running requests'
// growth that is likely to come. (Evictable tokens of a prefix cache would be added here.)
int64_t Scheduler::admission_budget() const {
    double reserved = 0;
    for (const Sequence* sequence : running_)
        reserved += static_cast<double>(growth(*sequence)) * ratio_.value();
    return kv_.free_tokens() - static_cast<int64_t>(reserved);
}

void Scheduler::plan_chunk(Plan& plan, Sequence& sequence, int num_tokens) {
    const int first = sequence.num_planned;
    sequence.num_planned += num_tokens;
    sequence.last_step = plan.step;
    const bool last = !sequence.prefilling();
    sequence.num_in_flight += last;
    plan.prefill.push_back({&sequence, first, num_tokens, last});
}

void Scheduler::plan_prefill(Plan& plan) {
    const bool chunked = options_.chunked_prefill_size > 0;
    int room = chunked ? options_.chunked_prefill_size : options_.max_prefill_tokens;
    const int page = kv_.page_size();
    // What is left of a prompt, or as much of it as there is room for, up to a page border. The
    // first of a batch without chunking is taken whole.
    const auto take = [&](int first, int end) {
        if (end - first <= room || (!chunked && plan.prefill.empty())) return end - first;
        return chunked ? std::max((first + room) / page * page - first, 0) : 0;
    };

    // Those admitted now will count with all their growth, those that run with its likely part.
    // What the admitted take at once is taken from the free tokens as whole blocks.
    int64_t budget = admission_budget();
    for (Sequence* sequence : running_) {  // the one that was cut goes on
        if (!sequence->prefilling()) continue;
        const int num_tokens = take(sequence->num_planned, sequence->prefill_end);
        if (num_tokens == 0) return;
        plan_chunk(plan, *sequence, num_tokens);
        if (sequence->prefilling()) return;
        room -= num_tokens;
    }

    std::vector<Sequence*> waiting = queue_;
    for (Sequence* sequence : waiting) {
        if (room <= 0 || static_cast<int>(running_.size()) >= options_.max_running_requests) return;
        if (!sequence->may_start) continue;
        const int num_tokens = static_cast<int>(sequence->tokens.size());
        const int64_t uncached = num_tokens - sequence->num_cached;
        if (uncached + growth(*sequence) + page > budget) return;
        const int now = take(sequence->num_cached, num_tokens);
        if (now == 0) return;

        const int64_t free_before = kv_.free_tokens();
        CHECK(kv_.extend(sequence->blocks, kv_.blocks_for(num_tokens)), "{} tokens, {} free",
              num_tokens, free_before);
        budget -= free_before - kv_.free_tokens() + growth(*sequence);
        std::erase(queue_, sequence);
        running_.push_back(sequence);
        sequence->state = State::kRunning;
        sequence->held = options_.flavour == Flavour::kPrefill;
        sequence->num_planned = sequence->num_cached;
        sequence->prefill_end = num_tokens;
        plan_chunk(plan, *sequence, now);
        if (sequence->prefilling()) return;  // cut: the rest of the room is less than a page
        room -= now;
    }
}

}  // namespace aerie::schedule
