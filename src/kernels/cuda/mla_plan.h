// MlaPlan: how the attention of one step is divided among the card's processors. Host code, without
// a card; no memory is asked for after construction.
//
// A sequence's rows times heads ("packed rows") are cut into tiles of 64 · width; a piece of work
// is one tile with a range of its keys, run by `width` thread blocks side by side, a "team".
// Balanced, long ranges are split so that every team has about the same number of tokens, and the
// results of the parts are merged: how a row is split, and so its last bits, depends on the whole
// step. Unsplit, every tile sees all its keys in one go: a row's bits depend on its own past alone,
// and a few rows over a long context leave most of the card idle.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/attention.h"

namespace aerie::kernels::cuda {

class MlaPlan {
  public:
    struct Limits {
        int heads = 1;  // divides 128
        int page_size = 64;
        int64_t max_rows = 0;
        int64_t max_blocks = 0;
        int num_processors = 132;
        bool balanced = true;
    };
    explicit MlaPlan(const Limits& limits);

    // Where in `ints` everything lies. A function of the number of rows that was asked for alone,
    // so that a captured graph finds the next steps' plans where it found its own.
    struct Layout {
        int width = 1;      // thread blocks of a team
        int num_teams = 0;  // width · num_teams <= processors
        int64_t max_works = 0;
        // [num_teams + 1] first work of each team; then of each work:
        int64_t work_begin = 0;
        int64_t q_row = 0;    // first row of the sequence
        int64_t pages = 0;    // of the sequence: first entry of its blocks in page_table
        int64_t partial = 0;  // first row of partial results, or -1: the result is whole
        int64_t q_len = 0;    // the sequence's rows
        int64_t kv_len = 0;   // its tokens
        int64_t q_start = 0;  // first packed row of the tile, within the sequence
        int64_t kv_start = 0;
        int64_t kv_end = 0;
        // Of each thread block, width · team + place: packed rows [begin, end) of the step that it
        // merges, their first parts' rows of partial results, the last part's end, and the distance
        // from one part to the next.
        int64_t merge_begin = 0;
        int64_t merge_end = 0;
        int64_t merge_partial_begin = 0;
        int64_t merge_partial_end = 0;
        int64_t merge_stride = 0;
        int64_t page_table = 0;  // last: as long as the sequences need
    };
    Layout layout(int64_t num_rows) const;
    int64_t max_ints() const;          // of any plan
    int64_t max_partial_rows() const;  // of any plan

    // Fills ints with the plan of these sequences in layout(num_rows)'s places; they have num_rows
    // rows at most. Returns how many ints are in use.
    int64_t make(std::span<const MlaSequence> sequences, int64_t num_rows, int32_t* ints);

  private:
    struct Work {
        int team, sequence, q_start, kv_start, kv_end, partial;
    };
    struct Team {
        int64_t cost;
        int index;
        bool operator>(const Team& other) const {
            return std::pair(cost, index) > std::pair(other.cost, other.index);
        }
    };

    int64_t share_of_a_team(std::span<const MlaSequence> sequences, const Layout& layout) const;
    int64_t busiest(std::span<const MlaSequence> sequences, const Layout& layout, int64_t share);
    void clear_teams(const Layout& layout);
    Team give(int64_t num_tokens, const Layout& layout);
    void add_tile(const MlaSequence& sequence, int index, int tile, const Layout& layout,
                  int64_t share, int32_t* ints);
    void add_merge(int64_t first_packed_row, int num_rows, int kv_end, const Layout& layout,
                   int64_t share, int32_t* ints);
    void write_works(std::span<const MlaSequence> sequences, const Layout& layout, int32_t* ints);

    const Limits limits_;
    std::vector<int> order_;  // of the sequences, longest first
    std::vector<int32_t> first_page_;
    std::vector<Team> teams_;  // a heap, least cost first
    std::vector<Work> works_;
    int num_merges_ = 0;
    int num_partial_rows_ = 0;
};

}  // namespace aerie::kernels::cuda
