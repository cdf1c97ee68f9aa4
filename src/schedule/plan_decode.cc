// The decode half of Scheduler::plan(): every running sequence gains a token, or more with drafts;
// where the KV cache is full, some are retracted so that the others can go on.
#include <algorithm>

#include "base/check.h"
#include "schedule/scheduler.h"

namespace aerie::schedule {

// Positions that a decode step computes: the newest token, and drafts of those behind it.
int Scheduler::decode_width(const Sequence& sequence) const {
    return 1 + std::min(static_cast<int>(sequence.drafts.size()), sequence.num_remaining() - 1);
}

// Of the step's positions, and of those behind them that drafting writes, as far as they can count.
int Scheduler::blocks_wanted(const Sequence& sequence) const {
    const int end = sequence.num_planned + decode_width(sequence) + options_.num_drafts;
    return kv_.blocks_for(std::min(end, sequence.num_prompt + sequence.output_limit));
}

std::vector<Sequence*> Scheduler::decode_batch() const {
    std::vector<Sequence*> batch;
    for (Sequence* sequence : running_)
        if (!sequence->prefilling() && sequence->num_remaining() > 0) batch.push_back(sequence);
    return batch;
}

// False where the batch has to wait for blocks.
bool Scheduler::plan_decode(Plan& plan) {
    std::vector<Sequence*> batch = decode_batch();
    if (batch.empty()) return true;
    if (!make_room(plan, batch)) return false;
    for (Sequence* sequence : batch) {
        CHECK_EQ(sequence->num_planned, sequence->num_tokens() - 1);
        CHECK(kv_.extend(sequence->blocks, blocks_wanted(*sequence)), "request {}", sequence->id);
        const int width = decode_width(*sequence);
        plan.decode.push_back({sequence, sequence->num_planned, width, true});
        sequence->num_planned += width;
        sequence->num_in_flight += 1;
        sequence->last_step = plan.step;
    }
    return true;
}

// Makes sure that the batch has the blocks it wants; false where it has to wait for them. Retracts
// only while no step runs: then what a sequence gives back is free at once, and its tokens are
// known.
bool Scheduler::make_room(Plan& plan, std::vector<Sequence*>& batch) {
    const auto fits = [&] {
        cache::KvBlocks::Demand demand = kv_.no_demand();
        for (const Sequence* sequence : batch)
            demand.add(static_cast<int>(sequence->blocks.size()), blocks_wanted(*sequence));
        return kv_.fits(demand);
    };
    if (fits()) {
        ratio_.decode_step();
        return true;
    }
    if (step_runs()) return false;

    const auto gives_way_before = [](const Sequence* a, const Sequence* b) {
        if (a->num_output() != b->num_output()) return a->num_output() < b->num_output();
        if (a->num_prompt != b->num_prompt) return a->num_prompt > b->num_prompt;
        return a->order > b->order;
    };
    while (batch.size() > 1 && !fits()) {
        Sequence* victim = *std::min_element(batch.begin(), batch.end(), gives_way_before);
        std::erase(batch, victim);
        retract(plan, *victim);
    }
    if (!plan.retracted.empty()) {
        int64_t num_output = 0, max_new = 0;
        for (const Sequence* sequence : batch) {
            num_output += sequence->num_output();
            max_new += sequence->output_limit;
        }
        ratio_.retraction(num_output, max_new, static_cast<int>(batch.size()));
    }
    if (fits()) return true;
    // Only one is left, and it fits the whole cache: others hold blocks whose KV is still being
    // computed or on its way; they come free, or become retractable.
    const Sequence& last = *batch[0];
    CHECK(kv_.used_tokens() > static_cast<int64_t>(last.blocks.size()) * kv_.page_size(),
          "request {} is alone with {} blocks and wants {}", last.id, last.blocks.size(),
          blocks_wanted(last));
    return false;
}

void Scheduler::retract(Plan& plan, Sequence& sequence) {
    plan.retracted.push_back({sequence.id, sequence.tokens, sequence.num_output()});
    ++num_retracted_;
    keep_prefix(sequence);
    give_back(sequence);
    std::erase(running_, &sequence);
    sequence.prefill_end = 0;
    sequence.num_matched = -1;
    sequence.drafts.clear();
    sequence.mtp_hidden.clear();
    sequence.retracted = true;
    sequence.announced = false;
    enqueue(sequence);
}

}  // namespace aerie::schedule
