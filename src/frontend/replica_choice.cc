#include "frontend/replica_choice.h"

#include <algorithm>
#include <tuple>

namespace aerie::frontend {
namespace {

constexpr int kExpectedOutputMax = 512;  // tokens of a choice

int64_t share(int64_t tokens, int num_choices) {
    return (tokens + num_choices - 1) / num_choices;
}

}  // namespace

ReplicaChoice::Replica& ReplicaChoice::of(Replicas& replicas, int replica) {
    return replicas.try_emplace(replica, options_.max_pages).first->second;
}

ReplicaChoice::Best ReplicaChoice::best(const std::vector<control::ReplicaState>& states,
                                        Replicas& replicas, const PageChain& prompt) {
    Best best;
    std::tuple<int64_t, int64_t, uint64_t> least;  // in the order of the rule
    for (const control::ReplicaState& state : states) {
        if (!state.live) continue;
        Replica& replica = of(replicas, state.replica);
        if (replica.epoch != state.epoch) {
            replica.epoch = state.epoch;
            replica.index.clear();
        }
        const int64_t cached = replica.index.match(prompt.pages()) * prompt.page_size();
        const int64_t uncached = prompt.num_tokens() - cached;
        const std::tuple score(replica.work + uncached, replica.index.num_pages(), replica.chosen);
        if (best.replica < 0 || score < least) {
            best = {state.replica, uncached};
            least = score;
        }
    }
    return best;
}

void ReplicaChoice::add(Replica& replica, int64_t work, const PageChain& prompt) {
    replica.work += work;
    replica.chosen = num_taken_;
    replica.index.insert(prompt.pages());
}

Result<ReplicaChoice::Placed> ReplicaChoice::take(const control::EngineState& state,
                                                  const PageChain& prompt, int num_choices,
                                                  int max_new_tokens) {
    std::lock_guard lock(mutex_);
    const Best decode = best(state.decode, decode_, prompt);
    const Best prefill = state.unified ? decode : best(state.prefill, prefill_, prompt);
    if (prefill.replica < 0) return error("no prefill host is live");
    if (decode.replica < 0) return error("no decode host is live");
    ++num_taken_;
    Placed placed{.prefill = prefill.replica, .decode = decode.replica};
    if (!state.unified) {
        placed.prefilling = true;
        placed.prefill_work = share(prefill.uncached, num_choices);
        add(of(prefill_, prefill.replica), placed.prefill_work * num_choices, prompt);
    }
    placed.decode_work =
        share(decode.uncached, num_choices) + std::min(max_new_tokens, kExpectedOutputMax);
    add(of(decode_, decode.replica), placed.decode_work * num_choices, prompt);
    return placed;
}

void ReplicaChoice::prefilled(Placed& placed) {
    if (!placed.prefilling) return;
    std::lock_guard lock(mutex_);
    of(prefill_, placed.prefill).work -= placed.prefill_work;
    placed.prefilling = false;
}

void ReplicaChoice::release(Placed& placed, const PageChain& text) {
    prefilled(placed);
    std::lock_guard lock(mutex_);
    Replica& decode = of(decode_, placed.decode);
    decode.work -= placed.decode_work;
    decode.index.insert(text.pages());
}

void ReplicaChoice::forget_prefixes() {
    std::lock_guard lock(mutex_);
    for (Replicas* replicas : {&prefill_, &decode_}) {
        for (auto& [number, replica] : *replicas) replica.index.clear();
    }
}

}  // namespace aerie::frontend
