#include "kernels/cuda/mla_plan.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace aerie::kernels::cuda {
namespace {

constexpr int kBlockRows = 64;  // packed rows of a thread block
// From so many rows on a step is a prefill, whatever the heads.
constexpr int64_t kPrefillRows = 2048;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int64_t kWhole = std::numeric_limits<int64_t>::max();  // a share that splits nothing

// In tokens: what a piece of work costs beside its tokens.
int64_t cost_of_a_tile(const MlaPlan::Layout& l) { return 2 * kBlockRows * l.width; }

int num_tiles(const MlaSequence& s, int heads, int tile_rows) {
    return static_cast<int>(ceil_div(int64_t{s.num_rows} * heads, tile_rows));
}

// Tokens that the last row of a tile attends to.
int kv_end(const MlaSequence& s, int tile, int heads, int tile_rows) {
    const int64_t last_row = ceil_div(int64_t{tile + 1} * tile_rows, heads);
    return s.first_position + static_cast<int>(std::min<int64_t>(last_row, s.num_rows));
}

}  // namespace

MlaPlan::MlaPlan(const Limits& limits) : limits_(limits) {
    CHECK(limits.heads >= 1 && 2 * kBlockRows % limits.heads == 0,
          "{} heads of a rank, expected a divisor of 128", limits.heads);
    order_.reserve(limits.max_rows);
    first_page_.reserve(limits.max_rows);
    teams_.reserve(limits.num_processors);
    works_.reserve(layout(limits.max_rows).max_works);
}

MlaPlan::Layout MlaPlan::layout(int64_t num_rows) const {
    Layout r;
    r.width = limits_.heads > kBlockRows || num_rows >= kPrefillRows ? 2 : 1;
    r.num_teams = limits_.num_processors / r.width;
    // A sequence has a tile that is not full at most, and a split ends where a team is full.
    r.max_works = ceil_div(num_rows * limits_.heads, kBlockRows * r.width) + num_rows + r.num_teams;
    int64_t end = 0;
    const auto place = [&](int64_t& begin, int64_t count) {
        begin = end;
        end += count;
    };
    place(r.work_begin, r.num_teams + 1);
    for (int64_t* begin :
         {&r.q_row, &r.pages, &r.partial, &r.q_len, &r.kv_len, &r.q_start, &r.kv_start, &r.kv_end})
        place(*begin, r.max_works);
    for (int64_t* begin : {&r.merge_begin, &r.merge_end, &r.merge_partial_begin,
                           &r.merge_partial_end, &r.merge_stride})
        place(*begin, limits_.num_processors);
    r.page_table = end;
    return r;
}

int64_t MlaPlan::max_ints() const {
    // One row fewer than a prefill has the narrow layout, whose works are twice as many.
    return std::max(layout(limits_.max_rows).page_table,
                    layout(std::min(limits_.max_rows, kPrefillRows - 1)).page_table) +
           limits_.max_blocks;
}

int64_t MlaPlan::max_partial_rows() const {
    // Parts are a team's share long, but for the last of a tile; there are as many shares as teams,
    // and fewer tiles that are longer than one.
    return limits_.balanced ? int64_t{2} * limits_.num_processors * kBlockRows : 0;
}

int64_t MlaPlan::make(std::span<const MlaSequence> sequences, int64_t num_rows, int32_t* ints) {
    int64_t rows = 0, pages = 0;
    order_.clear();
    first_page_.clear();
    const Layout l = layout(num_rows);
    for (const MlaSequence& s : sequences) {
        CHECK(s.num_rows >= 1 && s.first_position >= 0, "{} rows from position {}", s.num_rows,
              s.first_position);
        order_.push_back(static_cast<int>(order_.size()));
        first_page_.push_back(static_cast<int32_t>(pages));
        const int64_t count = ceil_div(int64_t{s.first_position} + s.num_rows, limits_.page_size);
        CHECK(pages + count <= limits_.max_blocks, "more than {} blocks", limits_.max_blocks);
        std::copy_n(s.blocks, count, ints + l.page_table + pages);
        pages += count;
        rows += s.num_rows;
    }
    CHECK(rows <= num_rows && num_rows <= limits_.max_rows, "{} rows of {}, at most {}", rows,
          num_rows, limits_.max_rows);
    const auto length = [&](int i) { return sequences[i].first_position + sequences[i].num_rows; };
    std::sort(order_.begin(), order_.end(),
              [&](int a, int b) { return std::pair(length(b), a) < std::pair(length(a), b); });

    clear_teams(l);
    works_.clear();
    num_merges_ = num_partial_rows_ = 0;
    std::fill_n(ints + l.merge_begin, l.page_table - l.merge_begin, 0);
    int64_t share = kWhole;
    if (limits_.balanced) {
        const int64_t even = share_of_a_team(sequences, l);
        if (busiest(sequences, l, even) < busiest(sequences, l, kWhole)) share = even;
    }
    for (int i : order_) {
        const MlaSequence& s = sequences[i];
        for (int t = num_tiles(s, limits_.heads, kBlockRows * l.width); t-- > 0;)
            add_tile(s, i, t, l, share, ints);
    }
    write_works(sequences, l, ints);
    return l.page_table + pages;
}

int64_t MlaPlan::share_of_a_team(std::span<const MlaSequence> sequences, const Layout& l) const {
    int64_t tokens = 0;
    for (const MlaSequence& s : sequences)
        for (int t = num_tiles(s, limits_.heads, kBlockRows * l.width); t-- > 0;)
            tokens += kv_end(s, t, limits_.heads, kBlockRows * l.width);
    // Short parts are multiples of the kernel's 64 tokens, long ones of 256; shorter ones cost more
    // to join than they save.
    constexpr int64_t kLeast = 128;
    const int64_t share = std::max(ceil_div(tokens, l.num_teams), kLeast);
    return share <= 192 ? ceil_div(share, 64) * 64 : ceil_div(share, 256) * 256;
}

// What the busiest team has to do. Leaves the teams as if they had nothing.
int64_t MlaPlan::busiest(std::span<const MlaSequence> sequences, const Layout& l, int64_t share) {
    const int tile_rows = kBlockRows * l.width;
    int64_t most = 0;
    for (int i : order_)
        for (int t = num_tiles(sequences[i], limits_.heads, tile_rows); t-- > 0;)
            for (int64_t rest = kv_end(sequences[i], t, limits_.heads, tile_rows); rest > 0;
                 rest -= share)
                most = std::max(most, give(std::min(rest, share), l).cost);
    clear_teams(l);
    return most;
}

void MlaPlan::clear_teams(const Layout& l) {
    teams_.clear();
    for (int i = 0; i < l.num_teams; ++i) teams_.push_back({0, i});
}

// To the team with the least to do.
MlaPlan::Team MlaPlan::give(int64_t num_tokens, const Layout& l) {
    std::pop_heap(teams_.begin(), teams_.end(), std::greater<>());
    Team& team = teams_.back();
    team.cost += cost_of_a_tile(l) + num_tokens;
    const Team changed = team;
    std::push_heap(teams_.begin(), teams_.end(), std::greater<>());
    return changed;
}

void MlaPlan::add_tile(const MlaSequence& s, int index, int tile, const Layout& l, int64_t share,
                       int32_t* ints) {
    const int tile_rows = kBlockRows * l.width;
    const int end = kv_end(s, tile, limits_.heads, tile_rows);
    const int q_start = tile * tile_rows;
    const auto num_rows = static_cast<int>(
        std::min<int64_t>(tile_rows, int64_t{s.num_rows} * limits_.heads - q_start));
    const bool split = end > share;
    if (split)
        add_merge(int64_t{s.first_row} * limits_.heads + q_start, num_rows, end, l, share, ints);
    for (int begin = 0; begin < end;) {
        const auto length = static_cast<int>(std::min<int64_t>(end - begin, share));
        works_.push_back({give(length, l).index, index, q_start, begin, begin + length,
                          split ? num_partial_rows_ : -1});
        if (split) num_partial_rows_ += num_rows;
        begin += length;
    }
}

// The rows of a split tile are shared out among as many thread blocks as its tokens are shares of
// one: of all tiles together there are no more than the card has.
void MlaPlan::add_merge(int64_t first_packed_row, int num_rows, int kv_end, const Layout& l,
                        int64_t share, int32_t* ints) {
    const auto num_parts = static_cast<int>(ceil_div(kv_end, share));
    const int rows_each = static_cast<int>(ceil_div(num_rows, int64_t{kv_end} * l.width / share));
    for (int begin = 0; begin < num_rows; begin += rows_each) {
        CHECK(num_merges_ < l.width * l.num_teams, "{} merges", num_merges_);
        const int i = num_merges_++;
        ints[l.merge_begin + i] = static_cast<int32_t>(first_packed_row + begin);
        ints[l.merge_end + i] =
            static_cast<int32_t>(first_packed_row + std::min(begin + rows_each, num_rows));
        ints[l.merge_partial_begin + i] = num_partial_rows_ + begin;
        ints[l.merge_partial_end + i] = num_partial_rows_ + num_parts * num_rows;
        ints[l.merge_stride + i] = num_rows;
    }
}

void MlaPlan::write_works(std::span<const MlaSequence> sequences, const Layout& l, int32_t* ints) {
    CHECK(static_cast<int64_t>(works_.size()) <= l.max_works, "{} pieces of work, {} expected",
          works_.size(), l.max_works);
    int32_t* begin = ints + l.work_begin;
    std::fill_n(begin, l.num_teams + 1, 0);
    for (const Work& w : works_) ++begin[w.team + 1];
    for (int i = 0; i < l.num_teams; ++i) begin[i + 1] += begin[i];
    // Each work goes to its team's next place; begin[team] runs on to the next team's begin ...
    for (const Work& w : works_) {
        const MlaSequence& s = sequences[w.sequence];
        const int32_t i = begin[w.team]++;
        ints[l.q_row + i] = s.first_row;
        ints[l.pages + i] = first_page_[w.sequence];
        ints[l.partial + i] = w.partial;
        ints[l.q_len + i] = s.num_rows;
        ints[l.kv_len + i] = s.first_position + s.num_rows;
        ints[l.q_start + i] = w.q_start;
        ints[l.kv_start + i] = w.kv_start;
        ints[l.kv_end + i] = w.kv_end;
    }
    // ... and is put back.
    std::copy_backward(begin, begin + l.num_teams, begin + l.num_teams + 1);
    begin[0] = 0;
}

}  // namespace aerie::kernels::cuda
