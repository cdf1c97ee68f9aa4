// StepRows: the rows of a step while it is being put together. Reused from step to step, so that in
// the steady state nothing is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/step.h"

namespace aerie::engine {

class StepRows {
  public:
    explicit StepRows(int cp_size) : cp_size_(cp_size) { clear(); }

    void clear();
    // Appends the tokens of positions first, first + 1, … of a sequence. blocks: of the sequence,
    // block b on cp rank b mod cp. Returns the first row.
    int add_sequence(std::span<const int32_t> tokens, int first, std::span<const int32_t> blocks);
    // draw: of the token behind the row, where a card draws it.
    void add_logits_row(int row, const std::optional<kernels::DrawParams>& draw = std::nullopt) {
        logits_rows_.push_back(row);
        if (!draw) return;
        draws_.resize(logits_rows_.size());
        draws_.back() = *draw;
    }
    // Whether the card draws from a row of the logits.
    bool is_drawn(int logits_row) const {
        return logits_row < static_cast<int>(draws_.size()) && draws_[logits_row].num_ids > 0;
    }
    int num_logits_rows() const { return static_cast<int>(logits_rows_.size()); }
    int num_rows() const { return static_cast<int>(tokens_.size()); }
    // In equal parts, at most `given` of them, or 0: as many as pay. What a decode step computes of a
    // request stays in one.
    void cut_microbatches(int given);
    int num_microbatches() const { return static_cast<int>(microbatch_begin_.size()); }

    // Valid until the next change.
    model::StepInput input(Phase phase);

  private:
    const int cp_size_;
    std::vector<int32_t> tokens_;
    std::vector<model::SequenceSlice> sequences_;
    std::vector<int32_t> block_ids_;   // of all sequences, table after table
    std::vector<size_t> table_begin_;  // [sequences · cp_size + 1] into block_ids_
    std::vector<std::span<const int32_t>> tables_;
    std::vector<int64_t> microbatch_begin_;
    std::vector<int32_t> logits_rows_;
    std::vector<kernels::DrawParams> draws_;  // of the first logits rows; without num_ids: none
};

}  // namespace aerie::engine
