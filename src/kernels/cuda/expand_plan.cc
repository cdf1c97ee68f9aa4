#include "kernels/cuda/expand_plan.h"

#include <algorithm>
#include <cstring>

namespace aerie::kernels::cuda {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

ExpandPlan::ExpandPlan(const Limits& limits) : limits_(limits) {
    CHECK(limits.piece_tokens >= 2 * kTileRows, "pieces of {} tokens", limits.piece_tokens);
    first_page_.reserve(limits.max_rows);
}

// A segment that is not its sequence's last is as long as a piece, but for what a tile is short of.
int64_t ExpandPlan::max_ints() const {
    const int64_t cuts =
        limits_.max_blocks * limits_.page_size / (limits_.piece_tokens - kTileRows + 1);
    const int64_t segments = limits_.max_rows + cuts;
    const int64_t tiles = limits_.max_rows + ceil_div(limits_.max_rows, kTileRows) * cuts;
    return limits_.max_blocks + segments * sizeof(Segment) / sizeof(int32_t) +
           tiles * sizeof(Tile) / sizeof(int32_t);
}

int ExpandPlan::room() const {
    return static_cast<int>(limits_.piece_tokens) - pieces_.back().num_tokens;
}

int64_t ExpandPlan::make(std::span<const MlaSequence> sequences, int32_t* ints) {
    ints_ = ints;
    used_ = 0;
    pieces_.clear();
    first_page_.clear();
    int64_t rows = 0;
    for (const MlaSequence& s : sequences) {
        const int64_t count = ceil_div(int64_t{s.first_position} + s.num_rows, limits_.page_size);
        CHECK(s.num_rows >= 1 && used_ + count <= limits_.max_blocks,
              "{} rows, {} blocks and {} before them, at most {}", s.num_rows, count, used_,
              limits_.max_blocks);
        first_page_.push_back(static_cast<int32_t>(used_));
        std::copy_n(s.blocks, count, ints + used_);
        used_ += count;
        rows += s.num_rows;
    }
    CHECK(rows <= limits_.max_rows, "{} rows, at most {}", rows, limits_.max_rows);
    pieces_.emplace_back();
    const auto begin_piece = [this] {
        finish_piece();
        pieces_.emplace_back();
    };
    for (size_t i = 0; i < sequences.size(); ++i) {
        const MlaSequence& s = sequences[i];
        const int length = s.first_position + s.num_rows;
        if (room() < length && !segments_.empty()) begin_piece();
        for (int begin = 0; begin < length;) {
            int end = std::min(length, begin + room());
            if (s.first_position < end && end < length)
                end = s.first_position + (end - s.first_position) / kTileRows * kTileRows;
            add_segment(s, first_page_[i], begin, end);
            begin = end;
            if (begin < length) begin_piece();
        }
    }
    finish_piece();
    return used_;
}

void ExpandPlan::add_segment(const MlaSequence& s, int pages, int begin, int end) {
    Piece& piece = pieces_.back();
    segments_.push_back({piece.num_tokens, begin, pages});
    const bool joined = begin > 0;
    for (int first = 0; first < s.num_rows; first += kTileRows) {
        const int num_rows = std::min(kTileRows, s.num_rows - first);
        const int position = s.first_position + first;
        if (position + num_rows <= begin) continue;
        if (joined && piece.num_joined_rows == 0) {
            piece.first_joined_row = s.first_row + first;
            piece.num_joined_rows = s.num_rows - first;
        }
        const bool causal = position < end;
        tiles_[joined][causal].push_back({s.first_row + first, num_rows, piece.num_tokens,
                                          (causal ? position + num_rows : end) - begin});
    }
    piece.num_tokens += end - begin;
}

void ExpandPlan::finish_piece() {
    Piece& piece = pieces_.back();
    piece.segments = put(segments_.data(), segments_.size(), sizeof(Segment) / sizeof(int32_t));
    segments_.clear();
    for (const bool joined : {false, true}) {
        for (const bool causal : {false, true}) {
            std::vector<Tile>& tiles = tiles_[joined][causal];
            std::sort(tiles.begin(), tiles.end(), [](const Tile& a, const Tile& b) {
                return std::pair(b.num_tokens, a.first_row) < std::pair(a.num_tokens, b.first_row);
            });
            piece.tiles[joined][causal] =
                put(tiles.data(), tiles.size(), sizeof(Tile) / sizeof(int32_t));
            tiles.clear();
        }
    }
}

ExpandPlan::Part ExpandPlan::put(const void* items, size_t count, size_t ints_each) {
    const Part part{used_, static_cast<int>(count)};
    if (count > 0) std::memcpy(ints_ + used_, items, count * ints_each * sizeof(int32_t));
    used_ += static_cast<int64_t>(count * ints_each);
    return part;
}

}  // namespace aerie::kernels::cuda
