// AttentionRank: the forward pass of one attention rank: (tp, cp) of a replica of tp_size × cp_size
// ranks, which are threads of one process and find each other through a comm::Group. Architecture.md
// sections 2 and 7 say who computes what, and in what order sums are taken.
//
// One thread, the rank's own, calls everything here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "comm/group.h"
#include "config/model_config.h"
#include "exchange/attention_side.h"
#include "kernels/rope.h"
#include "model/attention_weights.h"
#include "model/step.h"
#include "model/step_layout.h"
#include "model/step_profile.h"
#include "tensor/kv_pool.h"
#include "tensor/stream.h"

namespace aerie::model {

struct AttentionRankOptions {
    // All of these outlive the rank.
    const ModelConfig* config = nullptr;
    const AttentionWeights* weights = nullptr;  // of this rank's tp slice
    const kernels::RopeTable* rope = nullptr;
    // Of this cp rank, shared by its tp ranks; of these, tp 0 writes.
    KvPool* pool = nullptr;
    comm::Group* group = nullptr;  // of size tp_size · cp_size, by RankPlaceInReplica::index(); may be
                                   // null where that is 1
    exchange::AttentionSide* experts = nullptr;  // may be null where no layer is MoE
    Stream* stream = nullptr;

    RankPlaceInReplica place;
    int64_t max_rows = 0;         // of a step
    int64_t max_logits_rows = 0;  // of a step
    // Rows that attention computes at once: bounds its memory. Changes a result only where weights
    // can_expand, as it decides how many rows share an expansion.
    int64_t tile_rows = 256;
    // Of the card, whose tables of blocks are sized by it: sequences of a step. 0: max_rows.
    int64_t max_sequences = 0;
    bool deterministic = true;  // of the card: see kernels/attention.h's MlaStep
    // Of the card: decode steps of so many rows, ascending, are CUDA graphs, made at create(). A step of
    // fewer rows is filled up to the next; one of more runs kernel by kernel. None where `experts` waits
    // for others.
    std::vector<int64_t> graph_rows;
    // Of the card: a layer's KV is copied elsewhere as soon as the observer's layer_done() tells of it,
    // which is therefore called once the card has come so far; else when it has been told what to do.
    bool kv_leaves = false;
    StepProfile* profile = nullptr;  // may be null
};

class AttentionRank {
  public:
    // Allocates all memory that steps use. The error names what does not fit together.
    static Result<std::unique_ptr<AttentionRank>> create(const AttentionRankOptions& options);
    ~AttentionRank();

    // Computes a step: writes the KV of its rows into the pool, for all but the MTP layer, and makes
    // the logits. All ranks of the
    // replica call it with the same input. observer may be null. An input that does not fit is an
    // error that touches nothing. An error of a wait (a rank or an expert that did not answer) aborts
    // the group, so that all ranks return; the rows' KV is then undefined, and steps may go on once
    // all have returned and the group was reset().
    Status forward(const StepInput& input, LayerObserver* observer);
    // The same for a pass through the MTP layer, where the weights have one; its logits are those of
    // the shared LM head. Arithmetic: model.md section 4, summed and rounded as in the main layers. The
    // observer hears of layer num_hidden_layers. hidden_of may name rows of hidden_rows(), which it
    // replaces.
    Status draft(const DraftInput& input, LayerObserver* observer);

    // Of the last pass, until the next. The leader's (tp 0, cp 0) only.
    ConstView logits() const;  // f32 [logits_rows, vocab_size]; what the card has drawn from is not there
    std::span<const kernels::Drawn> drawn() const;  // [StepInput::draws]; none on a CPU
    bool on_card() const;  // where tokens are drawn for a step that asks for it
    // What the LM head saw, or would have seen, of every row of the last pass: after the final norm, or
    // after shared_head.norm. On every rank; empty where the weights have no MTP layer, and after an
    // error that aborted the group.
    ConstView hidden_rows() const;  // compute type [rows, hidden_size]

    size_t workspace_bytes() const;
    // Decode steps of the card so far that were a graph, and that were not.
    uint64_t num_graph_steps() const;
    uint64_t num_eager_steps() const;

  private:
    struct Impl;
    explicit AttentionRank(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace aerie::model
