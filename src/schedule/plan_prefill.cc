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

// Tokens that admission may give away: what is free or evictable, without the part of the running
// requests' growth that is likely to come.
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
    plan.num_prompt_logprobs +=
        std::max(0, num_tokens - std::max(sequence.first_prompt_logit() - first, 0));
    plan.prefill.push_back({&sequence, first, num_tokens, last});
}

// What is left of a prompt up to `end`, or as much of it as there is room for, up to a page border.
// The first of a batch without chunking is taken whole, but where the prompt's logits are wanted.
int Scheduler::chunk_of(const Plan& plan, const Sequence& sequence, int end, int room) const {
    const bool wants_logits = sequence.first_prompt_logit() < end;
    const bool chunked = options_.chunked_prefill_size > 0 || wants_logits;
    const int first = sequence.num_planned;
    if (const int from = sequence.first_prompt_logit(); wants_logits) {
        const int most = std::max(options_.prompt_logprob_rows, kv_.page_size());
        room = std::min(room, std::max(from - first, 0) + std::max(most - plan.num_prompt_logprobs, 0));
    }
    if (end - first <= room || (!chunked && plan.prefill.empty())) return end - first;
    const int page = kv_.page_size();
    return chunked ? std::max((first + room) / page * page - first, 0) : 0;
}

// room: new tokens that the step may still take. admits: others than those that run may start; not
// where the running ones need what is free.
void Scheduler::plan_prefill(Plan& plan, int room, bool admits) {
    for (Sequence* sequence : running_) {  // the one that was cut goes on
        if (!sequence->prefilling()) continue;
        const int num_tokens =
            chunk_of(plan, *sequence, sequence->prefill_end, room);
        if (num_tokens == 0) return;
        plan_chunk(plan, *sequence, num_tokens);
        if (sequence->prefilling()) return;
        room -= num_tokens;
    }
    if (!admits || options_.flavour == Flavour::kDecode || queue_.empty()) return;
    if (room <= 0 || static_cast<int>(running_.size()) >= options_.max_running_requests) return;

    // Those admitted now will count with all their growth, those that run with its likely part.
    // What the admitted take at once is taken from the free tokens as whole blocks.
    int64_t budget = admission_budget();
    std::unordered_set<uint64_t> under_way = beginnings_under_way();
    for (Sequence* sequence : waiting_order()) {
        if (room <= 0 || static_cast<int>(running_.size()) >= options_.max_running_requests) return;
        if (!sequence->may_start) continue;
        const int64_t free_before = kv_.free_tokens();
        take_cached_prefix(*sequence);
        const auto end = static_cast<int>(sequence->matchable().size());
        const uint64_t key = cache_ ? beginning(*sequence, sequence->num_cached, end) : 0;
        if (key != 0 && sequence->num_overtaken < kMaxOvertaken && under_way.contains(key)) {
            give_back(*sequence);  // its beginning will be in the cache
            continue;
        }
        const int64_t growth = this->growth(*sequence);
        if (!admit(plan, *sequence, room, budget - free_before + kv_.free_tokens()))
            return give_back(*sequence);
        budget -= free_before - kv_.free_tokens() + growth;
        if (sequence->prefilling()) return;  // cut: the rest of the room is less than a page
        under_way.insert(key);
    }
}

// With cp, free tokens are counted by the fullest rank, and a cached prefix may fill the ranks
// unevenly; what runs alone fits whatever is cached of it.
bool Scheduler::fits_alone(const Sequence& sequence) const {
    if (!running_.empty() || !offered_.empty()) return false;
    cache::KvBlocks::Demand demand = kv_.no_demand();
    demand.add(static_cast<int>(sequence.blocks.size()),
               kv_.blocks_for(static_cast<int64_t>(sequence.tokens.size())));
    return kv_.fits(demand);
}

// The sequence holds its cached prefix. False where the rest does not fit.
bool Scheduler::admit(Plan& plan, Sequence& sequence, int& room, int64_t budget) {
    const int num_tokens = static_cast<int>(sequence.tokens.size());
    const int64_t uncached = num_tokens - sequence.num_cached;
    if (chunk_of(plan, sequence, num_tokens, room) == 0) return false;
    if (uncached + growth(sequence) + kv_.page_size() > budget && !fits_alone(sequence)) return false;
    get_blocks(sequence);
    const int now = chunk_of(plan, sequence, num_tokens, room);
    std::erase(queue_, &sequence);
    for (Sequence* other : queue_)
        other->num_overtaken += !sequence.retracted && other->order < sequence.order;
    running_.push_back(&sequence);
    set_state(sequence, State::kRunning);
    sequence.held = options_.flavour == Flavour::kPrefill;
    sequence.prefill_end = num_tokens;
    if (sequence.num_output() == 0) sequence.cached_prompt = sequence.num_cached;
    plan_chunk(plan, sequence, now);
    room -= now;
    return true;
}

}  // namespace aerie::schedule
