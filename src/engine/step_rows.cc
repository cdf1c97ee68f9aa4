#include "engine/step_rows.h"

#include <algorithm>

#include "schedule/draft_length.h"

namespace aerie::engine {
namespace {

// Rows that a microbatch has at least where their number is given, and where it is chosen.
constexpr int kMinRowsGiven = 2;
constexpr int kMinRowsChosen = 4;

}  // namespace

void StepRows::clear() {
    tokens_.clear();
    sequences_.clear();
    block_ids_.clear();
    table_begin_.assign(1, 0);
    microbatch_begin_.clear();
    logits_rows_.clear();
    draws_.clear();
}

int StepRows::add_sequence(std::span<const int32_t> tokens, int first,
                           std::span<const int32_t> blocks) {
    const int row = num_rows();
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    sequences_.push_back({.first_row = row,
                          .num_rows = static_cast<int64_t>(tokens.size()),
                          .first_position = first,
                          .blocks = {}});
    for (int c = 0; c < cp_size_; ++c) {
        for (size_t b = c; b < blocks.size(); b += cp_size_) block_ids_.push_back(blocks[b]);
        table_begin_.push_back(block_ids_.size());
    }
    return row;
}

// With two, attention and experts work at the same time. Each keeps a few rows, so that cutting pays.
void StepRows::cut_microbatches(int given) {
    const int most = given > 0 ? given : 2;
    const int count = std::clamp(num_rows() / (given > 0 ? kMinRowsGiven : kMinRowsChosen), 1, most);
    microbatch_begin_.assign(1, 0);
    for (int m = 1; m < count; ++m) {
        int64_t begin = int64_t{num_rows()} * m / count;
        const auto after = std::upper_bound(
            sequences_.begin(), sequences_.end(), begin,
            [](int64_t row, const model::SequenceSlice& slice) { return row < slice.first_row; });
        const model::SequenceSlice& cut = *std::prev(after);
        if (cut.num_rows <= 1 + schedule::kMaxDrafts) begin = cut.first_row;
        if (begin > microbatch_begin_.back()) microbatch_begin_.push_back(begin);
    }
}

model::StepInput StepRows::input(Phase phase) {
    tables_.clear();
    for (size_t i = 0; i + 1 < table_begin_.size(); ++i) {
        tables_.emplace_back(block_ids_.data() + table_begin_[i], table_begin_[i + 1] - table_begin_[i]);
    }
    for (size_t s = 0; s < sequences_.size(); ++s) {
        sequences_[s].blocks = std::span(tables_).subspan(s * cp_size_, cp_size_);
    }
    if (!draws_.empty()) draws_.resize(logits_rows_.size());
    return {.tokens = tokens_,
            .sequences = sequences_,
            .microbatch_begin = microbatch_begin_,
            .phase = phase,
            .logits_rows = logits_rows_,
            .draws = draws_};
}

}  // namespace aerie::engine
