// In which order plan() tries the waiting requests, and which of them wait for another's prefix.
#include <algorithm>
#include <unordered_map>

#include "base/hash.h"
#include "schedule/scheduler.h"

namespace aerie::schedule {
namespace {

// Requests that share so many tokens that are not cached are computed one after the other.
constexpr int kMinShared = 32;

// The pages on the way from the root to each match, as numbers that count from 0. Fills in the
// matches' own, and returns the parents.
std::vector<int> number_pages(const cache::PrefixCache& cache,
                              const std::vector<Sequence*>& queue, std::vector<Waiting>& view) {
    std::vector<int> parents;
    std::unordered_map<int32_t, int> number;
    for (size_t i = 0; i < queue.size(); ++i) {
        int child = -1;
        for (int32_t page = queue[i]->match_page; page != -1; page = cache.parent(page)) {
            const auto [it, is_new] = number.try_emplace(page, static_cast<int>(parents.size()));
            if (is_new) parents.push_back(-1);
            (child == -1 ? view[i].node : parents[child]) = it->second;
            if (!is_new) break;  // its parents are known
            child = it->second;
        }
    }
    return parents;
}

}  // namespace

std::vector<Sequence*> Scheduler::waiting_order() {
    const Policy policy = options_.policy.policy;
    if (policy == Policy::kFcfs) return queue_;  // it stands in this order
    std::vector<Waiting> view;
    std::vector<int> parents;
    const bool matched = cache_ && reads_cache(policy, queue_.size());
    if (matched) match_waiting();
    view.reserve(queue_.size());
    for (const Sequence* sequence : queue_) {
        view.push_back({.order = sequence->order,
                        .num_cached = matched ? sequence->num_matched : 0,
                        .max_new_tokens = sequence->output_limit,
                        .priority = sequence->priority,
                        .num_overtaken = sequence->num_overtaken,
                        .retracted = sequence->retracted});
    }
    if (matched && policy == Policy::kDfsWeight) parents = number_pages(*cache_, queue_, view);
    std::vector<Sequence*> ordered;
    ordered.reserve(queue_.size());
    for (const int i : order_of(options_.policy, view, parents, planned_steps_))
        ordered.push_back(queue_[i]);
    return ordered;
}

// Looks again at those that wait where the cache holds something else than before.
void Scheduler::match_waiting() {
    const uint64_t now[2] = {static_cast<uint64_t>(cache_->cached_tokens()),
                             cache_->evicted_tokens()};
    const bool same = std::equal(now, now + 2, matched_at_);
    std::copy_n(now, 2, matched_at_);
    for (Sequence* sequence : queue_) {
        if (same && sequence->num_matched >= 0) continue;
        const auto match = cache_->match(sequence->cache_salt, sequence->matchable());
        sequence->num_matched = match.num_tokens + match.num_lower_tokens;
        sequence->match_page = match.page;
    }
}

// A number for the pages that a sequence computes first, from `first` on, and the place where they
// stand; 0 where `end` comes before the whole of them. Two sequences with one number share them
// (or, by an accident that costs one of them a round, do not).
uint64_t Scheduler::beginning(const Sequence& sequence, int first, int end) const {
    const int page = kv_.page_size();
    const int num_shared = (kMinShared + page - 1) / page * page;
    if (first + num_shared > end) return 0;
    const int from = std::max(first - page, 0);
    uint64_t number = hash_bytes(sequence.cache_salt.data(), sequence.cache_salt.size(),
                                 static_cast<uint64_t>(first));
    number = hash_bytes(sequence.tokens.data() + from,
                        (first + num_shared - from) * sizeof(int32_t), number);
    return std::max<uint64_t>(number, 1);
}

// Of those that run and whose prompts are not in the cache yet.
std::unordered_set<uint64_t> Scheduler::beginnings_under_way() const {
    std::unordered_set<uint64_t> result;
    if (!cache_) return result;
    for (const Sequence* sequence : running_) {
        if (sequence->num_computed >= sequence->prefill_end) continue;
        result.insert(beginning(*sequence, sequence->num_computed, sequence->prefill_end));
    }
    result.erase(0);
    return result;
}

}  // namespace aerie::schedule
