#include "engine/drafting.h"

#include <cstring>

namespace aerie::engine {

Drafting::Drafting(const DraftingOptions& options, int cp, int microbatches, Team& team,
                   sample::Sampler& sampler)
    : options_(options), microbatches_(microbatches), team_(team), sampler_(sampler), rows_(cp) {}

void Drafting::add(const schedule::PlanEntry& entry, int first_row, std::span<const int32_t> gained,
                   bool ends) {
    schedule::Sequence& sequence = *entry.sequence;
    sequence.drafts.clear();
    if (sequence.state == schedule::State::kEnded) return;  // aborted since
    if (entry.first < sequence.prefill_end)
        add_prefill(entry, first_row);
    else if (!gained.empty())
        add_decode(entry, first_row, gained, ends);
}

// The slots of the chunk: the same rows as the main layers', each with the hidden row before it.
void Drafting::add_prefill(const schedule::PlanEntry& entry, int first_row) {
    schedule::Sequence& sequence = *entry.sequence;
    rows_.add_sequence(std::span(sequence.tokens).subspan(entry.first, entry.num_tokens),
                       entry.first, sequence.blocks);
    hidden_of_.push_back(given(sequence.mtp_hidden));
    for (int i = 1; i < entry.num_tokens; ++i) hidden_of_.push_back(first_row + i - 1);
    kept_.emplace_back(&sequence, first_row + entry.num_tokens - 1);
}

// The slots of the gained tokens, and before them, in the first decode step, that of the token which
// the prompt gave. One that ends needs none for its last token, whose KV nobody will read.
void Drafting::add_decode(const schedule::PlanEntry& entry, int first_row,
                          std::span<const int32_t> gained, bool ends) {
    schedule::Sequence& sequence = *entry.sequence;
    const auto num_gained = static_cast<int>(gained.size()) - (ends ? 1 : 0);
    const bool begins = !sequence.mtp_hidden.empty();
    history_.assign(1, sequence.tokens[entry.first]);
    history_.insert(history_.end(), gained.begin(), gained.begin() + num_gained);
    const std::span<const int32_t> tokens = std::span(history_).subspan(begins ? 0 : 1);
    if (tokens.empty()) return;
    rows_.add_sequence(tokens, entry.first + (begins ? 0 : 1), sequence.blocks);
    if (begins) hidden_of_.push_back(given(sequence.mtp_hidden));
    for (int i = 0; i < num_gained; ++i) hidden_of_.push_back(first_row + i);
    sequence.mtp_hidden.clear();
    if (ends) return;
    entries_.push_back({.sequence = &sequence,
                        .gained = gained,
                        .position = entry.first + num_gained,
                        .num_wanted = sequence.num_remaining() - num_gained,
                        .row = rows_.num_rows() - 1});
}

// Where DraftInput finds a row that an earlier step has left.
int32_t Drafting::given(std::string& hidden) {
    const size_t row_bytes = team_.hidden_rows().cols * size_of(team_.hidden_rows().dtype);
    if (hidden.size() != row_bytes) return model::kNoHidden;
    const auto* bytes = reinterpret_cast<const std::byte*>(hidden.data());
    given_.insert(given_.end(), bytes, bytes + row_bytes);
    return model::given_hidden_row(num_given_++);
}

Status Drafting::run(Phase phase, const std::function<void(int, int)>& layer_done) {
    const auto num_requests = static_cast<int>(entries_.size());
    for (Entry& entry : entries_) {
        entry.num_wanted = entry.sequence->draft_length.next(
            std::min(options_.num_steps, entry.num_wanted), options_.cost, num_requests);
    }
    std::erase_if(entries_, [](const Entry& entry) { return entry.num_wanted <= 0; });
    for (const Entry& entry : entries_) rows_.add_logits_row(entry.row);
    keep_hidden();
    Status ran;
    for (int num_passes = 0; ran && rows_.num_rows() > 0;) {
        ran = pass(num_passes == 0 ? phase : Phase::kDecode, layer_done);
        rows_.clear();
        hidden_of_.clear();
        if (!ran || entries_.empty()) break;
        sample_drafts();
        add_drafted(++num_passes);
    }
    if (!ran) {
        for (Entry& entry : entries_) entry.sequence->drafts.clear();
    }
    rows_.clear();
    hidden_of_.clear();
    given_.clear();
    num_given_ = 0;
    entries_.clear();
    return ran;
}

Status Drafting::pass(Phase phase, const std::function<void(int, int)>& layer_done) {
    rows_.cut_microbatches(microbatches_);
    const ConstView last = team_.hidden_rows();
    return team_.draft({.step = rows_.input(phase),
                        .hidden_of = hidden_of_,
                        .given_hidden = ConstView(given_.data(), last.dtype, num_given_, last.cols)},
                       layer_done);
}

// The next chunk, or the first decode step, perhaps on another replica, goes on from it.
void Drafting::keep_hidden() {
    const ConstView hidden = team_.hidden_rows();
    for (const auto& [sequence, row] : kept_) {
        sequence->mtp_hidden.assign(reinterpret_cast<const char*>(hidden.row(row)),
                                    hidden.cols * size_of(hidden.dtype));
    }
    kept_.clear();
}

// With the random numbers of the position that is drafted, and by the same rules as the check: then
// the draft is what the check will draw wherever the two distributions agree.
void Drafting::sample_drafts() {
    const ConstView logits = team_.logits();
    for (size_t i = 0; i < entries_.size(); ++i) {
        Entry& entry = entries_[i];
        schedule::Sequence& sequence = *entry.sequence;
        history_.assign(sequence.tokens.begin() + sequence.num_prompt, sequence.tokens.end());
        history_.insert(history_.end(), entry.gained.begin(), entry.gained.end());
        history_.insert(history_.end(), sequence.drafts.begin(), sequence.drafts.end());
        auto token = sampler_.sample(logits.row_as<float>(static_cast<int64_t>(i)),
                                     sequence.sampling, history_,
                                     sequence.num_prompt + static_cast<int64_t>(history_.size()));
        if (token) sequence.drafts.push_back(*token);
        else entry.num_wanted = 0;  // no draft is no error
    }
}

// The rows of the next pass: what was drafted last, of those that want more.
void Drafting::add_drafted(int pass) {
    std::erase_if(entries_, [pass](const Entry& entry) { return entry.num_wanted <= pass; });
    for (Entry& entry : entries_) {
        const schedule::Sequence& sequence = *entry.sequence;
        hidden_of_.push_back(entry.row);
        entry.row = rows_.add_sequence(std::span(sequence.drafts).last(1), entry.position + pass,
                                       sequence.blocks);
        rows_.add_logits_row(entry.row);
    }
}

}  // namespace aerie::engine
