// Step: what one pass through the model, or through its MTP layer, computes. The same plan reaches all
// ranks of a replica.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exchange/phase.h"
#include "kernels/sampling.h"
#include "tensor/view.h"

namespace aerie::model {

inline constexpr int kMaxMicrobatches = 3;

// Consecutive tokens of one sequence, on consecutive rows of the step.
struct SequenceSlice {
    int64_t first_row = 0;
    int64_t num_rows = 0;
    int64_t first_position = 0;  // of the first row; the KV of all positions below it is in the pools
    // [cp_size] block tables: global block b (of page_size positions) is entry b / cp_size of table
    // b mod cp_size. As many as positions below first_position + num_rows touch.
    std::span<const std::span<const int32_t>> blocks;
};

struct StepInput {
    std::span<const int32_t> tokens;           // [rows]
    std::span<const SequenceSlice> sequences;  // by ascending first_row; together they are all rows
    // The first row of each microbatch, ascending from 0: one to three. A sequence may be cut; its
    // later rows then attend to the earlier ones through the pool.
    std::span<const int64_t> microbatch_begin;
    Phase phase = Phase::kPrefill;
    std::span<const int32_t> logits_rows;  // rows of the step whose logits are wanted
    // Of a card: [logits_rows], or none. Where num_ids is not 0 the row's token is drawn there, and its
    // logits do not come to the host.
    std::span<const kernels::DrawParams> draws = {};
};

// A pass through the MTP layer, number num_hidden_layers. Its slot j of a sequence is the KV that the
// layer makes of token t_j and of h_{j-1}, the hidden row that the LM head saw to predict t_j: the main
// model's after the final norm, or, where t_j was drafted by this layer, its own after
// shared_head.norm. The row attends to slots 0 … j and predicts t_{j+1}, so that a slot depends on
// tokens up to its own alone. (DeepSeek's papers number the same rows by h; rope is relative.)
struct DraftInput {
    StepInput step;  // tokens t_j, positions j; the same block tables as the main layers'
    // [rows] where each row's h_{j-1} is: r ≥ 0: row r of hidden_rows(); kNoHidden; or
    // given_hidden_row(k): row k of given_hidden.
    std::span<const int32_t> hidden_of;
    ConstView given_hidden;  // compute type [any, hidden_size]; rows from elsewhere, as of another rank
};
// The h of a row that has none at hand, as at position 0: zeros. Always defined; what comes of it may
// be a worse draft.
inline constexpr int32_t kNoHidden = -1;
constexpr int32_t given_hidden_row(int32_t k) { return -2 - k; }  // its own inverse

// Told of a step's progress on the rank's own thread; must not block.
class LayerObserver {
  public:
    virtual ~LayerObserver() = default;
    // The KV of this microbatch's rows in this layer is in the rank's pool.
    virtual void layer_done(int layer, int microbatch) = 0;
    // From the normed input to the residual after attention, waits for the replica's other ranks
    // included.
    virtual void attention_time(int layer, int microbatch, double seconds) {
        (void)layer, (void)microbatch, (void)seconds;
    }
    // On a card alone, which tells both at the step's end: from there to the next layer, that is gate,
    // routed experts and shared expert.
    virtual void experts_time(int layer, double seconds) { (void)layer, (void)seconds; }
    // On a card alone: all of a step is on its queue, and the rank is about to wait for it. What is not
    // needed for this step may be done now.
    virtual void launched() {}
};

}  // namespace aerie::model
