// ExpandPlan: how the attention of a step's sequences with keys and values per head is cut up. Host
// code, without a card; no memory is asked for once the largest step has been seen.
//
// Keys and values are made for a piece of tokens at a time, of one sequence or of several one
// behind the other, so that the memory that they need does not grow with the context. A sequence's
// tokens in one piece are a segment. A sequence that fits a piece is in one; a longer one is cut,
// and what its rows found in a later segment is joined to what they found in those before.
//
// Rows are computed in tiles of kTileRows of one sequence. A tile sees the whole of a segment, or
// up to each row's own token: a sequence is cut where no tile would see more than that of one part
// and less of another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"

namespace aerie::kernels::cuda {

class ExpandPlan {
  public:
    static constexpr int kTileRows = 128;

    struct Limits {
        int page_size = 64;
        int64_t max_rows = 0;
        int64_t max_blocks = 0;
        int64_t piece_tokens = 0;  // at least 2 · kTileRows
    };
    explicit ExpandPlan(const Limits& limits);

    // As the card reads them.
    struct Segment {
        int32_t begin = 0;     // first token, of the piece's
        int32_t position = 0;  // that token's in the sequence
        int32_t pages = 0;     // the sequence's first entry in the page table
    };
    struct Tile {
        int32_t first_row = 0;  // of the step
        int32_t num_rows = 0;
        int32_t first_token = 0;  // of the piece's
        int32_t num_tokens = 0;   // that the last row sees
    };
    struct Part {  // of `ints`
        int64_t at = 0;
        int count = 0;
    };
    struct Piece {
        int num_tokens = 0;
        Part segments;
        // [rows that have a result from an earlier piece][causal: row i of num_rows sees the first
        // num_tokens − num_rows + i + 1 tokens, else all], most tokens first.
        Part tiles[2][2];
        int first_joined_row = 0;  // of the step; these are one sequence's
        int num_joined_rows = 0;
    };

    int64_t max_ints() const;  // of any plan

    // Fills ints with the page table, segments and tiles of these sequences. Returns how many ints
    // are in use.
    int64_t make(std::span<const MlaSequence> sequences, int32_t* ints);
    // Of the last plan.
    std::span<const Piece> pieces() const { return pieces_; }

  private:
    int room() const;
    void add_segment(const MlaSequence& sequence, int pages, int begin, int end);
    void finish_piece();
    Part put(const void* items, size_t count, size_t ints_each);

    const Limits limits_;
    std::vector<Piece> pieces_;
    std::vector<int32_t> first_page_;
    std::vector<Segment> segments_;  // of the piece that is being filled
    std::vector<Tile> tiles_[2][2];
    int32_t* ints_ = nullptr;
    int64_t used_ = 0;
};

}  // namespace aerie::kernels::cuda
