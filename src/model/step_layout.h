// StepLayout: which rows of a step a rank computes, and where. A microbatch is cut into tiles of at
// most tile_rows rows, which bound the memory of attention. Of each tile, cp rank c has a contiguous
// share, and of that, tp rank t; a rank's own rows are these shares, one after the other.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/attention.h"
#include "model/attention_weights.h"
#include "model/step.h"

namespace aerie::model {

struct RankPlaceInReplica {
    int tp = 0;
    int tp_size = 1;
    int cp = 0;
    int cp_size = 1;

    int size() const { return tp_size * cp_size; }
    int index() const { return cp * tp_size + tp; }  // in the replica's comm::Group
};

struct StepLimits {
    int64_t max_rows = 0;
    int64_t tile_rows = 0;
    int64_t max_logits_rows = 0;
    int64_t max_position = 0;  // positions are below it
    int64_t vocab_size = 0;
    int64_t num_blocks = 0;  // of a pool
    int page_size = 0;
    // A sequence's rows in a tile are expanded (kernels/attention.h) where they make more pairs of
    // row and token than this, times the tokens before them: so many pairs must share the expansion
    // of a token to pay for it. A single row never is. Infinite: never.
    double pairs_to_expand = std::numeric_limits<double>::infinity();
};

// Consecutive rows of a tile whose attention is computed alike.
struct TilePart {
    Range rows;  // from the tile's first row
    bool expanded = false;
};

// The most rows that one rank of a replica owns in a step, and in a dispatch to the experts.
int64_t max_own_rows(int64_t max_rows, int64_t tile_rows, int replica_size);

class StepLayout {
  public:
    StepLayout(const RankPlaceInReplica& place, const StepLimits& limits);

    // Checks the input and lays it out. The input must stay until the next call. No allocation once
    // the largest step has been seen.
    Status build(const StepInput& input);

    int num_microbatches() const { return static_cast<int>(microbatches_.size()); }
    Range rows_of(int microbatch) const { return microbatches_[microbatch].rows; }  // of the step
    Range own_of(int microbatch) const { return microbatches_[microbatch].own; }  // of the own rows
    Range tiles_of(int microbatch) const { return microbatches_[microbatch].tiles; }
    int64_t num_own_rows() const { return static_cast<int64_t>(own_tokens_.size()); }

    int64_t num_tiles() const { return static_cast<int64_t>(tiles_.size()); }
    Range tile(int64_t tile) const { return tiles_[tile]; }  // rows of the step
    Range cp_share(int64_t tile, int cp) const;              // rows of the step
    Range share(int64_t tile, int cp, int tp) const;         // rows of the step
    // Where a rank's share of the tile begins among its own rows.
    int64_t own_begin(int64_t tile, int rank) const { return own_begin_[tile * size_ + rank]; }

    // The rank that owns a row, and the row's place among that rank's own rows.
    struct Owner {
        int rank = 0;
        int64_t own_row = 0;
    };
    Owner owner_of(int64_t row) const;

    const int32_t* positions() const { return positions_.data(); }   // [rows]
    const int64_t* slots() const { return slots_.data(); }           // [rows] in this cp rank's pool
    const int32_t* own_tokens() const { return own_tokens_.data(); }  // [own rows]
    const int32_t* own_positions() const { return own_positions_.data(); }
    std::span<const TilePart> parts(int64_t tile) const;  // together all rows of the tile
    // Of the tile's parts of this form; first_row counts from the tile's first row.
    std::span<const kernels::MlaSequence> sequences(int64_t tile, bool expanded) const;
    // What of the part lies in this cp rank's share, counted from the share's first row.
    Range in_cp_share(const TilePart& part, int64_t tile) const;

  private:
    struct Microbatch {
        Range rows, own, tiles;
    };

    Status check(const StepInput& input) const;
    Status check_sequence(const SequenceSlice& sequence, int64_t expected_row) const;
    void place_rows(const StepInput& input);
    void cut_tiles(const StepInput& input);
    void cut_sequences(const StepInput& input);
    bool expanded(const kernels::MlaSequence& sequence) const;
    void add_to_parts(const kernels::MlaSequence& sequence, bool expanded);

    RankPlaceInReplica place_;
    StepLimits limits_;
    int size_;
    std::vector<Microbatch> microbatches_;
    std::vector<Range> tiles_;
    std::vector<int64_t> own_begin_;          // [tiles, size]
    std::vector<int64_t> own_rows_of_rank_;  // [size]
    std::vector<int32_t> positions_, own_tokens_, own_positions_;
    std::vector<int64_t> slots_;
    struct Form {
        std::vector<kernels::MlaSequence> sequences;
        std::vector<size_t> first;  // [tiles + 1] into sequences
    } forms_[2];                    // absorbed, expanded
    std::vector<TilePart> parts_;
    std::vector<size_t> first_part_;  // [tiles + 1] into parts_
};

}  // namespace aerie::model
