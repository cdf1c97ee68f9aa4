// StepNumbers: the integers of a step that its kernels read, where the rank's kernels can read
// them: on a CPU those of the layout and the input themselves, on the card a copy, sent once a
// step.
#pragma once

#include <cstdint>
#include <span>

#include "model/step_layout.h"
#include "tensor/buffer.h"
#include "tensor/pinned_buffer.h"
#include "tensor/stream.h"

namespace aerie::model {

class StepNumbers {
  public:
    // A step of at most so many rows has its numbers close together, so that little is copied, and
    // always in the same places, where a graph finds them.
    static constexpr int64_t kFewRows = 512;

    StepNumbers(const StepLimits& limits, Device device);

    // For the step of this layout and input, which on a CPU must stay until the next call. On the
    // card the copy of the last call must have been made: steps end with a wait for their logits.
    // There the step is filled up to padded_rows with rows that store nothing, for a graph of so
    // many; 0: it is not.
    void set(Stream& stream, const StepLayout& layout, const StepInput& input,
             int64_t padded_rows = 0);

    const int32_t* own_tokens() const { return own_tokens_; }        // [own rows]
    const int32_t* own_positions() const { return own_positions_; }  // [own rows]
    const int32_t* positions() const { return positions_; }          // [rows]
    const int64_t* slots() const { return slots_; }              // [rows] in this cp rank's pool
    const int32_t* logits_rows() const { return logits_rows_; }  // [rows of logits]
    // Of the card: [rows of logits] where the step has any or is filled up.
    const kernels::DrawParams* draws() const { return draws_; }

  private:
    void place(int64_t rows);

    int64_t max_rows_ = 0;  // of a step's rows and of its logits'
    PinnedBuffer staged_;   // of the card: slots, positions, tokens, logits_rows, draws
    Buffer on_card_;
    const int32_t* own_tokens_ = nullptr;
    const int32_t* own_positions_ = nullptr;
    const int32_t* positions_ = nullptr;
    const int64_t* slots_ = nullptr;
    const int32_t* logits_rows_ = nullptr;
    const kernels::DrawParams* draws_ = nullptr;
};

}  // namespace aerie::model
