#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_io.h"
#include "kernels/linear.h"
#include "kernels/on_card.h"
#include "tensor/buffer.h"

namespace aerie::kernels {
namespace {

// Columns are computed in groups of 16, and groups in blocks that share each tile's packed KV.
// Absorbed, the columns of a sequence are its (row, head) pairs in row-major order; expanded, they
// are the rows of one head. There a block is longer, as it pays for the expansion.
constexpr int kBlockGroups = 16;
constexpr int kExpandedBlockGroups = 64;
// Results of single chunks that may wait to be joined; beyond it a block stays on one thread.
constexpr size_t kMaxPartBytes = size_t{64} << 20;
static_assert(kMlaTileTokens <= kMlaTile && kMlaChunkTokens % kMlaTileTokens == 0);

struct Block {
    const MlaSequence* sequence;
    int first_head;  // expanded: the only one
    int first_col;   // of the sequence
    int num_cols;
    int num_chunks;      // of the last row; at least 1
    int64_t first_part;  // of the split results

    int num_groups() const { return (num_cols + kMlaGroupCols - 1) / kMlaGroupCols; }
};

int key_dim_of(const MlaArgs& a) {
    const int64_t before_rope = a.expand_k != nullptr ? a.expand_k->n() : a.latent_dim;
    return static_cast<int>(before_rope) + a.rope_dim;
}
int value_dim_of(const MlaArgs& a) {
    return a.expand_v != nullptr ? static_cast<int>(a.expand_v->n()) : a.latent_dim;
}

int ceil_div(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

// How many of this rank's tokens are at positions <= position. They are a prefix of its local
// tokens.
int64_t local_tokens(const MlaArgs& a, int64_t position) {
    const int64_t blocks = (position + 1) / a.page_size, rest = (position + 1) % a.page_size;
    const int64_t whole = (blocks - a.cp_rank + a.cp_size - 1) / a.cp_size;  // 0 if blocks <= rank
    return whole * a.page_size + (blocks % a.cp_size == a.cp_rank ? rest : 0);
}

// Running result of one group of columns.
struct Partial {
    float max[kMlaGroupCols];
    float sum[kMlaGroupCols];
    // followed by acc [value_dim / 16][16][16]
    float* acc() { return reinterpret_cast<float*>(this + 1); }
    static size_t bytes(int value_dim) {
        return sizeof(Partial) + static_cast<size_t>(kMlaGroupCols * value_dim) * sizeof(float);
    }
};

class Attention {
  public:
    Attention(const MlaArgs& args)
        : a_(args),
          op_(ops()),
          bf16_(args.q.dtype == DType::kBF16),
          expanded_(args.expand_k != nullptr),
          heads_at_once_(expanded_ ? 1 : args.heads),
          pool_width_(args.latent_dim + args.rope_dim),
          key_dim_(key_dim_of(args)),
          value_dim_(value_dim_of(args)),
          element_(bf16_ ? 2 : 4) {}

    void run(Stream& stream);

  private:
    size_t q_bytes() const { return static_cast<size_t>(key_dim_ * kMlaGroupCols * element_); }
    size_t partial_bytes() const { return Partial::bytes(value_dim_); }
    // Of a tile's KV: copied, and expanded.
    size_t copy_bytes() const {
        const int expanded = expanded_ ? key_dim_ + value_dim_ : 0;
        return static_cast<size_t>(kMlaTileTokens * (pool_width_ + expanded) * element_);
    }
    Partial* partial(std::byte* base, int64_t i) const {
        return reinterpret_cast<Partial*>(base + static_cast<size_t>(i) * partial_bytes());
    }

    void pack_q(const Block& b, int group, std::byte* out) const;
    void run_chunk(const Block& b, int chunk, const std::byte* q, std::byte* partials,
                   std::byte* copy, void* tile_scratch) const;
    const std::byte* address_of(const Block& b, int64_t token) const;
    void fill_runs(const Block& b, int64_t token, MlaTile& tile, std::byte* copy) const;
    void expand(const Block& b, int64_t token, MlaTile& tile, std::byte* copy) const;
    void clear(Partial& result) const;
    void run_whole(const Block& b) const;
    void run_part(const Block& b, int chunk, std::byte* parts) const;
    void merge(const Block& b, int group, Partial* into, Partial* from) const;
    void finish(const Block& b, int group, Partial& result) const;
    int cols_of(const Block& b, int group) const {
        return std::min(kMlaGroupCols, b.num_cols - group * kMlaGroupCols);
    }
    int row_of(const Block& b, int col) const { return (b.first_col + col) / heads_at_once_; }
    int head_of(const Block& b, int col) const {
        return b.first_head + (b.first_col + col) % heads_at_once_;
    }
    int64_t position_of(const Block& b, int col) const {
        return b.sequence->first_position + row_of(b, col);
    }
    int64_t num_blocks_of(int most_cols) const;
    int cols_per_block(int num_threads) const;

    const MlaArgs& a_;
    const CpuOps& op_;
    const bool bf16_;
    const bool expanded_;
    const int heads_at_once_;  // in a block
    const int pool_width_;
    const int key_dim_;
    const int value_dim_;
    const int element_;  // bytes
};

// [key_dim][16] float32, or [key_dim / 2][16][2] bfloat16; columns that are not used are zero.
void Attention::pack_q(const Block& b, int group, std::byte* out) const {
    std::memset(out, 0, q_bytes());
    for (int c = 0; c < cols_of(b, group); ++c) {
        const int col = group * kMlaGroupCols + c;
        const std::byte* q = a_.q.row(b.sequence->first_row + row_of(b, col)) +
                             static_cast<int64_t>(head_of(b, col)) * key_dim_ * element_;
        // A pair of bfloat16 moves as one float32 would.
        for (int k = 0; k < key_dim_ * element_ / 4; ++k)
            std::memcpy(out + (k * kMlaGroupCols + c) * 4, q + k * 4, 4);
    }
}

// Where a local token of the sequence lies in the pool.
const std::byte* Attention::address_of(const Block& b, int64_t token) const {
    const int64_t slot =
        int64_t{b.sequence->blocks[token / a_.page_size]} * a_.page_size + token % a_.page_size;
    return static_cast<const std::byte*>(a_.kv_layer) + slot * pool_width_ * element_;
}

// Latents as they lie in the pool.
void Attention::fill_runs(const Block& b, int64_t token, MlaTile& tile, std::byte* copy) const {
    for (int r = 0; r < ceil_div(tile.num_tokens, kMlaRunTokens); ++r) {
        const int64_t begin = token + r * kMlaRunTokens;
        const int64_t tokens = std::min<int64_t>(kMlaRunTokens, token + tile.num_tokens - begin);
        if (a_.page_size % kMlaRunTokens == 0 && tokens == kMlaRunTokens) {
            tile.runs[r] = address_of(b, begin);
            continue;
        }
        // Copied: it lies in several pages, or its end was never written and may hold anything.
        const size_t bytes = static_cast<size_t>(pool_width_ * element_);
        std::byte* run = copy + static_cast<size_t>(r * kMlaRunTokens) * bytes;
        for (int64_t i = 0; i < tokens; ++i)
            std::memcpy(run + i * bytes, address_of(b, begin + i), bytes);
        std::memset(run + tokens * bytes, 0, (kMlaRunTokens - tokens) * bytes);
        tile.runs[r] = run;
    }
}

// [nope | rope | value] of the block's head for each token.
void Attention::expand(const Block& b, int64_t token, MlaTile& tile, std::byte* copy) const {
    const int64_t n = tile.num_tokens, row_bytes = int64_t{pool_width_} * element_;
    View latents(copy + kMlaTileTokens * tile.stride * element_, a_.q.dtype, n, pool_width_);
    for (int64_t i = 0; i < n;) {  // a stretch of consecutive blocks at a time
        const std::byte* from = address_of(b, token + i);
        int64_t end = i + 1;
        while (end < n && address_of(b, token + end) == from + (end - i) * row_bytes) ++end;
        std::memcpy(latents.row(i), from, static_cast<size_t>((end - i) * row_bytes));
        i = end;
    }
    const View to(copy, a_.q.dtype, n, tile.stride);
    const ConstView x = latents.slice_cols(0, a_.latent_dim);
    const int64_t nope = key_dim_ - a_.rope_dim;
    const LinearTask tasks[] = {
        {.x = x, .w = &a_.expand_k[b.first_head], .y = to.slice_cols(0, nope)},
        {.x = x, .w = &a_.expand_v[b.first_head], .y = to.slice_cols(key_dim_, to.cols)}};
    Stream this_thread;
    linear_grouped(this_thread, tasks);
    for (int64_t i = 0; i < n; ++i)
        std::memcpy(to.row(i) + nope * element_, latents.row(i) + a_.latent_dim * element_,
                    static_cast<size_t>(a_.rope_dim * element_));
    const int64_t runs = ceil_div(n, kMlaRunTokens);
    std::memset(to.row(n), 0,
                static_cast<size_t>((runs * kMlaRunTokens - n) * tile.stride * element_));
    for (int64_t r = 0; r < runs; ++r) tile.runs[r] = to.row(r * kMlaRunTokens);
}

// What a group has that saw no token.
void Attention::clear(Partial& result) const {
    std::fill_n(result.max, kMlaGroupCols, -std::numeric_limits<float>::infinity());
    std::fill_n(result.sum, kMlaGroupCols, 0.0f);
    std::fill_n(result.acc(), kMlaGroupCols * value_dim_, 0.0f);
}

// One chunk of KV for all groups of a block that see some of it.
void Attention::run_chunk(const Block& b, int chunk, const std::byte* q, std::byte* partials,
                          std::byte* copy, void* tile_scratch) const {
    MlaGroup groups[kExpandedBlockGroups];
    const int64_t begin = int64_t{chunk} * kMlaChunkTokens;
    for (int64_t token = begin; token < begin + kMlaChunkTokens; token += kMlaTileTokens) {
        MlaTile tile{};
        int num = 0, most = 0;
        for (int g = 0; g < b.num_groups(); ++g) {
            MlaGroup& group = groups[num];
            Partial* p = partial(partials, g);
            group = {q + static_cast<size_t>(g) * q_bytes(),
                     cols_of(b, g),
                     p->max,
                     p->sum,
                     p->acc(),
                     {},
                     0};
            group.num_tokens = 0;
            for (int c = 0; c < group.num_cols; ++c) {
                const int64_t seen =
                    local_tokens(a_, position_of(b, g * kMlaGroupCols + c)) - token;
                group.limit[c] = static_cast<int32_t>(std::clamp<int64_t>(seen, 0, kMlaTileTokens));
                group.num_tokens = std::max(group.num_tokens, group.limit[c]);
            }
            if (group.num_tokens == 0) {
                if (token == begin) clear(*p);
                continue;
            }
            most = std::max(most, group.num_tokens);
            ++num;
        }
        if (num == 0) break;
        tile.groups = groups;
        tile.num_groups = num;
        tile.num_tokens = most;
        tile.first = token == begin;
        tile.stride = expanded_ ? key_dim_ + value_dim_ : pool_width_;
        tile.key_dim = key_dim_;
        tile.value_begin = expanded_ ? key_dim_ : 0;
        tile.value_dim = value_dim_;
        tile.scale = a_.scale * 1.44269504f;
        tile.scratch = tile_scratch;
        if (expanded_)
            expand(b, token, tile, copy);
        else
            fill_runs(b, token, tile, copy);
        (bf16_ ? op_.mla_tile_bf16 : op_.mla_tile_f32)(tile);
    }
}

void Attention::merge(const Block& b, int group, Partial* into, Partial* from) const {
    MlaGroup to{nullptr, cols_of(b, group), into->max, into->sum, into->acc(), {}, 0};
    const MlaGroup more{nullptr, to.num_cols, from->max, from->sum, from->acc(), {}, 0};
    op_.mla_merge(to, more, value_dim_);
}

void Attention::finish(const Block& b, int group, Partial& result) const {
    for (int c = 0; c < cols_of(b, group); ++c) {
        const int64_t row = b.sequence->first_row + row_of(b, group * kMlaGroupCols + c);
        const int head = head_of(b, group * kMlaGroupCols + c);
        const float sum = result.sum[c];
        (bf16_ ? op_.mla_finish_bf16 : op_.mla_finish_f32)(
            result.acc() + c * 16, sum > 0 ? 1.0f / sum : 0.0f, value_dim_,
            {a_.out.row(row) + head * value_dim_ * static_cast<int64_t>(size_of(a_.out.dtype)),
             a_.out.dtype == DType::kBF16});
        if (a_.lse != nullptr)
            a_.lse[row * a_.heads + head] = sum > 0
                                                ? (result.max[c] + std::log2(sum)) * 0.693147181f
                                                : -std::numeric_limits<float>::infinity();
    }
}

// A block from its first chunk to its last on one thread.
void Attention::run_whole(const Block& b) const {
    static thread_local Scratch memory;
    const size_t groups = static_cast<size_t>(b.num_groups());
    auto* q = static_cast<std::byte*>(
        memory.reserve(groups * (q_bytes() + 2 * partial_bytes()) + copy_bytes() +
                       static_cast<size_t>(mla_scratch_bytes(value_dim_))));
    std::byte* result = q + groups * q_bytes();
    std::byte* chunk_result = result + groups * partial_bytes();
    std::byte* copy = chunk_result + groups * partial_bytes();
    std::byte* scratch = copy + copy_bytes();
    for (int g = 0; g < b.num_groups(); ++g) pack_q(b, g, q + static_cast<size_t>(g) * q_bytes());
    run_chunk(b, 0, q, result, copy, scratch);
    for (int chunk = 1; chunk < b.num_chunks; ++chunk) {
        run_chunk(b, chunk, q, chunk_result, copy, scratch);
        for (int g = 0; g < b.num_groups(); ++g)
            merge(b, g, partial(result, g), partial(chunk_result, g));
    }
    for (int g = 0; g < b.num_groups(); ++g) finish(b, g, *partial(result, g));
}

// One chunk of a block; the results of its groups go to parts [chunk][group].
void Attention::run_part(const Block& b, int chunk, std::byte* parts) const {
    static thread_local Scratch memory;
    const size_t groups = static_cast<size_t>(b.num_groups());
    auto* q = static_cast<std::byte*>(memory.reserve(
        groups * q_bytes() + copy_bytes() + static_cast<size_t>(mla_scratch_bytes(value_dim_))));
    std::byte* copy = q + groups * q_bytes();
    for (int g = 0; g < b.num_groups(); ++g) pack_q(b, g, q + static_cast<size_t>(g) * q_bytes());
    std::byte* mine = parts + static_cast<size_t>(b.first_part + int64_t{chunk} * b.num_groups()) *
                                  partial_bytes();
    run_chunk(b, chunk, q, mine, copy, copy + copy_bytes());
}

int64_t Attention::num_blocks_of(int most_cols) const {
    int64_t blocks = 0;
    for (const MlaSequence& s : a_.sequences)
        blocks += ceil_div(int64_t{s.num_rows} * heads_at_once_, most_cols);
    return blocks * (a_.heads / heads_at_once_);
}

// As many as share their KV well; fewer where threads would have nothing to do.
int Attention::cols_per_block(int num_threads) const {
    int groups = expanded_ ? kExpandedBlockGroups : kBlockGroups;
    while (groups > kBlockGroups && num_blocks_of(groups * kMlaGroupCols) < num_threads)
        groups /= 2;
    return groups * kMlaGroupCols;
}

void Attention::run(Stream& stream) {
    static thread_local Scratch block_memory, part_memory;
    const int most_cols = cols_per_block(stream.num_threads());
    int64_t num_blocks = num_blocks_of(most_cols), num_items = 0, num_parts = 0;
    auto* blocks = block_memory.reserve_as<Block>(static_cast<size_t>(num_blocks));
    int64_t n = 0;
    for (const MlaSequence& s : a_.sequences) {
        const int cols = s.num_rows * heads_at_once_;
        for (int col = 0; col < cols; col += most_cols)
            for (int head = 0; head < a_.heads; head += heads_at_once_) {
                Block& b = blocks[n++];
                b = {&s, head, col, std::min(most_cols, cols - col), 1, num_parts};
                b.num_chunks = std::max(
                    1, ceil_div(local_tokens(a_, position_of(b, b.num_cols - 1)), kMlaChunkTokens));
                num_items += b.num_chunks;
                num_parts += int64_t{b.num_chunks} * b.num_groups();
            }
    }
    const int64_t threads = stream.num_threads();
    const size_t part_bytes = static_cast<size_t>(num_parts) * partial_bytes();
    if (threads == 1 || num_blocks >= 4 * threads || num_items == num_blocks ||
        part_bytes > kMaxPartBytes) {
        // The last blocks of a prompt are the longest: begin with them.
        stream.parallel_for(num_blocks, [&](int64_t i) { run_whole(blocks[num_blocks - 1 - i]); });
        return;
    }
    auto* parts = static_cast<std::byte*>(part_memory.reserve(part_bytes));
    stream.parallel_for(num_items, [&](int64_t i) {
        int64_t block = 0;
        for (; i >= blocks[block].num_chunks; ++block) i -= blocks[block].num_chunks;
        run_part(blocks[block], static_cast<int>(i), parts);
    });
    const auto join = [&](int64_t i) {
        const Block& b = blocks[i];
        for (int g = 0; g < b.num_groups(); ++g) {
            Partial* result = partial(parts, b.first_part + g);
            for (int chunk = 1; chunk < b.num_chunks; ++chunk)
                merge(b, g, result,
                      partial(parts, b.first_part + int64_t{chunk} * b.num_groups() + g));
            finish(b, g, *result);
        }
    };
    if (num_parts <= 64)  // less than handing it out would cost
        for (int64_t i = 0; i < num_blocks; ++i) join(i);
    else
        stream.parallel_for(num_blocks, join);
}

void check_args(const MlaArgs& a) {
    CHECK(a.latent_dim > 0 && a.latent_dim % 32 == 0 && a.latent_dim <= 1024 && a.rope_dim >= 0 &&
              a.rope_dim % 32 == 0 && a.rope_dim <= 256,
          "latent {} rope {}", a.latent_dim, a.rope_dim);
    CHECK(
        a.heads > 0 && a.page_size > 0 && a.cp_size > 0 && a.cp_rank >= 0 && a.cp_rank < a.cp_size,
        "{} heads, page {}, cp {} of {}", a.heads, a.page_size, a.cp_rank, a.cp_size);
    check_float("q", a.q.dtype);
    check_float("out", a.out.dtype);
    const int key_dim = key_dim_of(a), value_dim = value_dim_of(a);
    CHECK((a.expand_k == nullptr) == (a.expand_v == nullptr) && key_dim % 32 == 0 &&
              value_dim % 32 == 0,
          "keys of {}, values of {}", key_dim, value_dim);
    CHECK(a.q.cols == int64_t{a.heads} * key_dim && a.out.cols == int64_t{a.heads} * value_dim,
          "q has {} columns, out {}, for {} heads", a.q.cols, a.out.cols, a.heads);
    CHECK(a.expand_kv == nullptr, "the card's weights on a CPU");
    CHECK(a.scale > 0, "scale {}", a.scale);
    CHECK(a.lse != nullptr || a.cp_size == 1, "cp {} without lse", a.cp_size);
    for (const MlaSequence& s : a.sequences)
        CHECK(s.first_row >= 0 && s.first_row + s.num_rows <= std::min(a.q.rows, a.out.rows) &&
                  s.first_position >= 0,
              "rows {} + {} of {}, position {}", s.first_row, s.num_rows, a.q.rows,
              s.first_position);
}

}  // namespace

#ifndef AERIE_CUDA  // else cuda/mla_step.cc has them
struct MlaStep::Impl {};
MlaStep::MlaStep(const Limits&, const Shape&) {}
MlaStep::~MlaStep() = default;
void MlaStep::prepare(Stream&, std::span<const MlaSequence>, int64_t,
                      std::span<const MlaSequence>) {}
#endif

void mla_attention(Stream& stream, const MlaArgs& args) {
    ON_CARD(stream, mla_attention(stream, args));
    check_args(args);
    Attention(args).run(stream);
}

void mla_merge(Stream& stream, const MlaMergeArgs& args) {
    constexpr size_t kMaxRanks = 64;
    const size_t ranks = args.partials.size();
    CHECK(ranks >= 1 && ranks <= kMaxRanks && args.lse.size() == ranks, "{} partials, {} lse",
          ranks, args.lse.size());
    check_float("out", args.out.dtype);
    for (ConstView p : args.partials)
        CHECK(p.dtype == DType::kF32 && p.rows == args.out.rows && p.cols == args.out.cols,
              "partial [{}, {}] {}", p.rows, p.cols, name_of(p.dtype));
    const CpuOps& op = ops();
    const int64_t value_dim = args.out.cols / args.heads;
    const auto merge_head = [&](int64_t row, int64_t head) {
        PairOfRow weights[kMaxRanks];
        const auto lse = [&](size_t r) { return args.lse[r][row * args.heads + head]; };
        float highest = lse(0), total = 0;
        for (size_t r = 1; r < ranks; ++r) highest = std::max(highest, lse(r));
        float factors[kMaxRanks];
        for (size_t r = 0; r < ranks; ++r) {
            factors[r] = std::isinf(lse(r)) ? 0.0f : std::exp(lse(r) - highest);
            total += factors[r];
        }
        // One rank at a time, through memory of the thread: the ranks' rows lie anywhere.
        static thread_local Scratch memory;
        auto* sum = memory.reserve_as<float>(static_cast<size_t>(value_dim));
        for (size_t r = 0; r < ranks; ++r) {
            weights[r] = {0, total > 0 ? factors[r] / total : 0.0f};
            op.accumulate({args.partials[r].row(row) + head * value_dim * 4, false}, 0, &weights[r],
                          1, r == 0, value_dim, {sum, false});
        }
        const RowIn source{sum, false};
        op.sum(
            &source, 1, value_dim,
            {args.out.row(row) + head * value_dim * static_cast<int64_t>(size_of(args.out.dtype)),
             args.out.dtype == DType::kBF16});
    };
    parallel_rows(stream, args.out.rows, args.out.cols * 4 * static_cast<int64_t>(ranks + 1),
                  [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i)
                          for (int h = 0; h < args.heads; ++h) merge_head(i, h);
                  });
}

}  // namespace aerie::kernels
