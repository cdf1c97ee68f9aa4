// From the step's logits to its tokens.
#include <algorithm>

#include "base/fault.h"
#include "engine/leader.h"
#include "sample/on_card.h"

namespace aerie::engine {

// Of the positions that it computes, those that hold drafts.
int Leader::drafts_in(const schedule::PlanEntry& entry) {
    const auto known = static_cast<int>(entry.sequence->tokens.size());
    return std::max(entry.first + entry.num_tokens - known, 0);
}

// Where the card can draw the entry's token, and nothing else needs the logits.
std::optional<kernels::DrawParams> Leader::draw_on_card(const schedule::PlanEntry& entry) const {
    const schedule::Sequence& sequence = *entry.sequence;
    if (!team_.on_card() || !entry.sample || drafts_in(entry) > 0 || sequence.hash_logits ||
        sequence.sampling.num_top_logprobs >= 0) {
        return std::nullopt;
    }
    const auto position = static_cast<int64_t>(sequence.tokens.size());
    return sample::draw_on_card(options_.sampler, sequence.sampling, sequence.num_output(),
                                position + (fault_planted(Fault::kDrawMoved) ? 1 : 0));
}

// Draws the tokens of the step's rows; the scheduler is told in end_step().
void Leader::sample(const schedule::Plan& plan) {
    advances_.clear();
    sampled_.clear();
    sampled_.reserve(rows_.num_logits_rows());  // the advances point into it
    ends_.assign(plan.prefill.size() + plan.decode.size(), false);
    draw_ahead(plan);
    int index = 0;
    for (const auto& entry : plan.prefill) sample_entry(entry, index++);
    for (const auto& entry : plan.decode) sample_entry(entry, index++);
}

// On all threads the tokens that the card has not drawn, and that depend on nothing which this step has yet
// to find out, an accepted draft or a grammar's place.
void Leader::draw_ahead(const schedule::Plan& plan) {
    draws_.clear();
    draw_of_.clear();
    const ConstView logits = team_.logits();
    for (const auto* entries : {&plan.prefill, &plan.decode}) {
        for (const auto& entry : *entries) {
            const schedule::Sequence& sequence = *entry.sequence;
            const int row = logits_begin_[draw_of_.size() + 1] - 1;
            const bool alone = entry.sample && drafts_in(entry) == 0 && !rows_.is_drawn(row) &&
                               sequence.state != schedule::State::kEnded &&
                               sequence.sampling.grammar.kind == Grammar::Kind::kNone;
            draw_of_.push_back(alone ? static_cast<int>(draws_.size()) : -1);
            if (!alone) continue;
            draws_.push_back({.logits = logits.row_as<float>(row),
                              .params = &sequence.sampling,
                              .output = std::span(sequence.tokens).subspan(sequence.num_prompt),
                              .position = static_cast<int64_t>(sequence.tokens.size()),
                              .token = std::nullopt});
        }
    }
    row_sampler_.sample(draws_);
}

void Leader::sample_entry(const schedule::PlanEntry& entry, int index) {
    schedule::Sequence& sequence = *entry.sequence;
    if (sequence.state == schedule::State::kEnded) return;  // aborted since
    const int begin = logits_begin_[index], end = logits_begin_[index + 1];
    const int num_drafts = drafts_in(entry);
    const size_t first = sampled_.size();
    int num_gained = 0;
    if (entry.sample) {
        num_gained = check_drafts(entry, index);
        if (num_gained == 0) return;
        advances_.push_back({&sequence, std::span(sampled_).subspan(first)});
        ends_[index] = scheduler_.judge(sequence, num_gained, sampled_.back()) != FinishReason::kNone;
        if (entry.first >= sequence.prefill_end) {
            ++num_decoded_;
            num_gained_ += num_gained;
            num_drafted_ += num_drafts;
            num_accepted_ += num_gained - 1;
            if (!ends_[index]) sequence.draft_length.checked(num_drafts, num_gained - 1);
        }
    }
    if (sequence.hash_logits) {
        const ConstView logits = team_.logits();
        auto& hashes = hashes_[sequence.id];
        for (int row = begin; row < end - 1 - num_drafts + std::max(num_gained, 1); ++row) {
            hashes.push_back(sample::hash_logits(logits.row_as<float>(row), static_cast<int>(logits.cols)));
        }
    }
    note_prompt_logprobs(entry, begin, end);
}

// Rows [begin, end) of the logits are the last ones of the entry; each predicts the token behind it.
void Leader::note_prompt_logprobs(const schedule::PlanEntry& entry, int begin, int end) {
    const schedule::Sequence& sequence = *entry.sequence;
    const int from = sequence.sampling.prompt_logprobs_from;
    if (from < 0 || sequence.num_output() > 0 || entry.first >= sequence.num_prompt - 1) return;
    const ConstView logits = team_.logits();
    auto& noted = prompt_logprobs_[sequence.id];
    for (int row = begin; row < end; ++row) {
        const int predicted = entry.first + entry.num_tokens - (end - row) + 1;
        if (predicted < from || predicted >= sequence.num_prompt) continue;
        noted.push_back(sampler_.logprobs(logits.row_as<float>(row), sequence.sampling,
                                          sequence.tokens[predicted]));
    }
}

// Draws the token behind the entry's known tokens, and behind each draft that was what was drawn before
// it, each with the random numbers of its own position: what would have been drawn one a step.
// Returns how many; 0: the request has failed.
int Leader::check_drafts(const schedule::PlanEntry& entry, int index) {
    const schedule::Sequence& sequence = *entry.sequence;
    const int num_drafts = drafts_in(entry), row = logits_begin_[index + 1] - 1 - num_drafts;
    const ConstView logits = team_.logits();
    std::span<const int32_t> output = std::span(sequence.tokens).subspan(sequence.num_prompt);
    if (num_drafts > 0) history_.assign(output.begin(), output.end());
    for (int i = 0;; ++i) {
        const float* of_row = logits.row_as<float>(row + i);
        const int ahead = draw_of_[index];
        auto token = rows_.is_drawn(row + i) ? sample::token_of(team_.drawn()[row + i], options_.sampler)
                     : ahead >= 0            ? *draws_[ahead].token
                                             : sample_row(sequence, of_row, output, i);
        if (!token) {
            handoff_->fail(sequence.id, token.message());
            return 0;
        }
        if (sequence.sampling.num_top_logprobs >= 0) {
            logprobs_[sequence.id].push_back(sampler_.logprobs(of_row, sequence.sampling, *token));
        }
        sampled_.push_back(*token);
        const int num_gained = i + 1;
        if (i == num_drafts || *token != sequence.drafts[i] ||
            scheduler_.judge(sequence, num_gained, *token) != FinishReason::kNone) {
            return num_gained;
        }
        history_.push_back(*token);
        output = history_;
    }
}

// The token behind those that the sequence has, output and i more, as its grammar allows it.
Result<int32_t> Leader::sample_row(const schedule::Sequence& sequence, const float* logits,
                                   std::span<const int32_t> output, int i) {
    const auto mask = constraints_.mask_for(sequence);
    if (!mask.ok()) return mask.error();
    auto token = sampler_.sample(logits, sequence.sampling, output,
                                 static_cast<int64_t>(sequence.tokens.size()) + i, mask.value());
    if (token) RETURN_IF_ERROR(constraints_.accept(sequence, *token));
    return token;
}

}  // namespace aerie::engine
