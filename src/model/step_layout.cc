#include "model/step_layout.h"

#include <algorithm>
#include <cmath>

namespace aerie::model {

int64_t max_own_rows(int64_t max_rows, int64_t tile_rows, int replica_size) {
    if (replica_size == 1) return max_rows;
    // Shares are rounded up once in each tile, and each microbatch may end in a partial one.
    const int64_t tiles = max_rows / tile_rows + kMaxMicrobatches;
    return std::min(max_rows, max_rows / replica_size + tiles);
}

StepLayout::StepLayout(const RankPlaceInReplica& place, const StepLimits& limits)
    : place_(place), limits_(limits), size_(place.size()) {
    const auto rows = static_cast<size_t>(limits.max_rows);
    positions_.reserve(rows);
    slots_.reserve(rows);
    own_tokens_.reserve(rows);
    own_positions_.reserve(rows);
}

Status StepLayout::check_sequence(const SequenceSlice& sequence, int64_t expected_row) const {
    if (sequence.first_row != expected_row || sequence.num_rows < 1) {
        return error("step: a sequence has {} rows from row {}, expected at least one from row {}",
                     sequence.num_rows, sequence.first_row, expected_row);
    }
    const int64_t end = sequence.first_position + sequence.num_rows;
    if (sequence.first_position < 0 || end > limits_.max_position) {
        return error("step: a sequence has positions {} to {}, expected 0 to {}",
                     sequence.first_position, end - 1, limits_.max_position - 1);
    }
    if (sequence.blocks.size() != static_cast<size_t>(place_.cp_size)) {
        return error("step: a sequence has {} block tables, expected {}", sequence.blocks.size(),
                     place_.cp_size);
    }
    const auto table = sequence.blocks[place_.cp];
    const int64_t blocks = (end + limits_.page_size - 1) / limits_.page_size;  // global
    const int64_t needed = (blocks - place_.cp + place_.cp_size - 1) / place_.cp_size;
    if (static_cast<int64_t>(table.size()) < needed)
        return error("step: a sequence has {} blocks, {} positions need {}", table.size(), end, needed);
    for (int64_t i = 0; i < needed; ++i) {
        if (table[i] < 0 || table[i] >= limits_.num_blocks)
            return error("step: block {}, expected 0 to {}", table[i], limits_.num_blocks - 1);
    }
    return {};
}

Status StepLayout::check(const StepInput& input) const {
    const auto rows = static_cast<int64_t>(input.tokens.size());
    if (rows < 1 || rows > limits_.max_rows)
        return error("step: {} rows, expected 1 to {}", rows, limits_.max_rows);
    for (int32_t token : input.tokens) {
        if (token < 0 || token >= limits_.vocab_size)
            return error("step: token {}, expected 0 to {}", token, limits_.vocab_size - 1);
    }
    int64_t next_row = 0;
    for (const SequenceSlice& sequence : input.sequences) {
        RETURN_IF_ERROR(check_sequence(sequence, next_row));
        next_row += sequence.num_rows;
    }
    if (next_row != rows) return error("step: sequences have {} rows of {}", next_row, rows);
    const auto begins = input.microbatch_begin;
    if (begins.empty() || begins.size() > kMaxMicrobatches || begins[0] != 0)
        return error("step: {} microbatches, expected 1 to {} from row 0", begins.size(),
                     kMaxMicrobatches);
    for (size_t i = 0; i < begins.size(); ++i) {
        const int64_t end = i + 1 < begins.size() ? begins[i + 1] : rows;
        if (begins[i] >= end)
            return error("step: microbatch {} has rows {} to {}, expected at least one", i, begins[i],
                         end - 1);
    }
    if (static_cast<int64_t>(input.logits_rows.size()) > limits_.max_logits_rows) {
        return error("step: {} rows of logits, expected at most {}", input.logits_rows.size(),
                     limits_.max_logits_rows);
    }
    if (!input.draws.empty() && input.draws.size() != input.logits_rows.size()) {
        return error("step: {} draws for {} rows of logits", input.draws.size(),
                     input.logits_rows.size());
    }
    for (int32_t row : input.logits_rows) {
        if (row < 0 || row >= rows) return error("step: logits of row {} of {}", row, rows);
    }
    return {};
}

Status StepLayout::build(const StepInput& input) {
    RETURN_IF_ERROR(check(input));
    place_rows(input);
    cut_tiles(input);
    cut_sequences(input);
    return {};
}

void StepLayout::place_rows(const StepInput& input) {
    positions_.clear();
    slots_.clear();
    for (const SequenceSlice& sequence : input.sequences) {
        const auto table = sequence.blocks[place_.cp];
        for (int64_t i = 0; i < sequence.num_rows; ++i) {
            const int64_t position = sequence.first_position + i;
            const int64_t block = position / limits_.page_size;
            const bool here = block % place_.cp_size == place_.cp;
            positions_.push_back(static_cast<int32_t>(position));
            slots_.push_back(here ? table[block / place_.cp_size] * int64_t{limits_.page_size} +
                                        position % limits_.page_size
                                  : -1);
        }
    }
}

void StepLayout::cut_tiles(const StepInput& input) {
    microbatches_.clear();
    tiles_.clear();
    own_begin_.clear();
    own_tokens_.clear();
    own_positions_.clear();
    own_rows_of_rank_.assign(static_cast<size_t>(size_), 0);
    const auto num_rows = static_cast<int64_t>(input.tokens.size());
    for (size_t m = 0; m < input.microbatch_begin.size(); ++m) {
        const bool last = m + 1 == input.microbatch_begin.size();
        Microbatch microbatch;
        microbatch.rows = {input.microbatch_begin[m],
                           last ? num_rows : input.microbatch_begin[m + 1]};
        microbatch.tiles.begin = static_cast<int64_t>(tiles_.size());
        microbatch.own.begin = num_own_rows();
        for (int64_t row = microbatch.rows.begin; row < microbatch.rows.end;
             row += limits_.tile_rows) {
            const auto tile = static_cast<int64_t>(tiles_.size());
            tiles_.push_back({row, std::min(row + limits_.tile_rows, microbatch.rows.end)});
            for (int rank = 0; rank < size_; ++rank) {
                own_begin_.push_back(own_rows_of_rank_[rank]);
                own_rows_of_rank_[rank] +=
                    share(tile, rank / place_.tp_size, rank % place_.tp_size).size();
            }
            const Range own = share(tile, place_.cp, place_.tp);
            own_tokens_.insert(own_tokens_.end(), input.tokens.begin() + own.begin,
                               input.tokens.begin() + own.end);
            own_positions_.insert(own_positions_.end(), positions_.begin() + own.begin,
                                  positions_.begin() + own.end);
        }
        microbatch.tiles.end = static_cast<int64_t>(tiles_.size());
        microbatch.own.end = num_own_rows();
        microbatches_.push_back(microbatch);
    }
}

void StepLayout::cut_sequences(const StepInput& input) {
    parts_.clear();
    first_part_.clear();
    for (Form& form : forms_) {
        form.sequences.clear();
        form.first.clear();
    }
    auto sequence = input.sequences.begin();
    const auto begin_tile = [this] {
        first_part_.push_back(parts_.size());
        for (Form& form : forms_) form.first.push_back(form.sequences.size());
    };
    for (const Range& tile : tiles_) {
        begin_tile();
        while (sequence->first_row + sequence->num_rows <= tile.begin) ++sequence;
        for (auto s = sequence; s != input.sequences.end() && s->first_row < tile.end; ++s) {
            const int64_t begin = std::max(s->first_row, tile.begin);
            const int64_t end = std::min(s->first_row + s->num_rows, tile.end);
            const kernels::MlaSequence cut{
                .first_row = static_cast<int32_t>(begin - tile.begin),
                .num_rows = static_cast<int32_t>(end - begin),
                .first_position = static_cast<int32_t>(s->first_position + begin - s->first_row),
                .blocks = s->blocks[place_.cp].data()};
            const bool form = expanded(cut);
            forms_[form].sequences.push_back(cut);
            add_to_parts(cut, form);
        }
    }
    begin_tile();
}

bool StepLayout::expanded(const kernels::MlaSequence& s) const {
    if (std::isinf(limits_.pairs_to_expand) || s.num_rows == 1) return false;
    const double before = s.first_position, rows = s.num_rows;
    return rows * before + rows * (rows + 1) / 2 > limits_.pairs_to_expand * before;
}

void StepLayout::add_to_parts(const kernels::MlaSequence& s, bool form) {
    const bool first = parts_.size() == first_part_.back();
    if (first || parts_.back().expanded != form)
        parts_.push_back({{s.first_row, s.first_row}, form});
    parts_.back().rows.end = s.first_row + s.num_rows;
}

Range StepLayout::cp_share(int64_t tile, int cp) const {
    const Range rows = tiles_[tile];
    const Range part = share_of(rows.size(), place_.cp_size, cp);
    return {rows.begin + part.begin, rows.begin + part.end};
}

Range StepLayout::share(int64_t tile, int cp, int tp) const {
    const Range rows = cp_share(tile, cp);
    const Range part = share_of(rows.size(), place_.tp_size, tp);
    return {rows.begin + part.begin, rows.begin + part.end};
}

StepLayout::Owner StepLayout::owner_of(int64_t row) const {
    const auto after = std::upper_bound(tiles_.begin(), tiles_.end(), row,
                                        [](int64_t r, const Range& tile) { return r < tile.begin; });
    const int64_t tile = after - tiles_.begin() - 1;
    for (int rank = 0;; ++rank) {
        const Range rows = share(tile, rank / place_.tp_size, rank % place_.tp_size);
        if (rows.begin <= row && row < rows.end)
            return {rank, own_begin(tile, rank) + row - rows.begin};
    }
}

std::span<const TilePart> StepLayout::parts(int64_t tile) const {
    return std::span(parts_).subspan(first_part_[tile], first_part_[tile + 1] - first_part_[tile]);
}

std::span<const kernels::MlaSequence> StepLayout::sequences(int64_t tile, bool expanded) const {
    const Form& form = forms_[expanded];
    return std::span(form.sequences)
        .subspan(form.first[tile], form.first[tile + 1] - form.first[tile]);
}

Range StepLayout::in_cp_share(const TilePart& part, int64_t tile) const {
    const Range share = cp_share(tile, place_.cp);
    const int64_t from = share.begin - tiles_[tile].begin;
    const int64_t begin = std::clamp<int64_t>(part.rows.begin - from, 0, share.size());
    return {begin, std::clamp<int64_t>(part.rows.end - from, begin, share.size())};
}

}  // namespace aerie::model
