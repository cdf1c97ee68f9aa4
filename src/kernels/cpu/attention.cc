#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_io.h"
#include "tensor/buffer.h"

namespace aerie::kernels {
namespace {

// Columns, the (row, head) pairs of a sequence in row-major order, are computed in groups of 16,
// and groups in blocks that share each tile's packed KV.
constexpr int kBlockGroups = 16;
// Results of single chunks that may wait to be joined; beyond it a block stays on one thread.
constexpr size_t kMaxPartBytes = size_t{64} << 20;
static_assert(kMlaTileTokens <= kMlaTile && kMlaChunkTokens % kMlaTileTokens == 0);

struct Block {
    const MlaSequence* sequence;
    int first_col;  // of the sequence
    int num_cols;
    int num_chunks;      // of the last row; at least 1
    int64_t first_part;  // of the split results

    int num_groups() const { return (num_cols + kMlaGroupCols - 1) / kMlaGroupCols; }
};

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
    // followed by acc [latent / 16][16][16]
    float* acc() { return reinterpret_cast<float*>(this + 1); }
    static size_t bytes(int latent) {
        return sizeof(Partial) + static_cast<size_t>(kMlaGroupCols * latent) * sizeof(float);
    }
};

class Attention {
  public:
    Attention(const MlaArgs& args)
        : a_(args),
          op_(ops()),
          bf16_(args.q.dtype == DType::kBF16),
          width_(args.latent_dim + args.rope_dim),
          element_(bf16_ ? 2 : 4) {}

    void run(Stream& stream);

  private:
    size_t q_bytes() const {
        return static_cast<size_t>((width_ + 1) / 2 * 2 * kMlaGroupCols * element_);
    }
    size_t partial_bytes() const { return Partial::bytes(a_.latent_dim); }
    Partial* partial(std::byte* base, int64_t i) const {
        return reinterpret_cast<Partial*>(base + static_cast<size_t>(i) * partial_bytes());
    }

    void pack_q(const Block& b, int group, std::byte* out) const;
    void run_chunk(const Block& b, int chunk, const std::byte* q, std::byte* partials,
                   std::byte* copy, void* tile_scratch) const;
    void fill_runs(const Block& b, int64_t token, MlaTile& tile, std::byte* copy) const;
    void run_whole(const Block& b) const;
    void run_part(const Block& b, int chunk, std::byte* parts) const;
    void merge(const Block& b, int group, Partial* into, Partial* from) const;
    void finish(const Block& b, int group, Partial& result) const;
    int cols_of(const Block& b, int group) const {
        return std::min(kMlaGroupCols, b.num_cols - group * kMlaGroupCols);
    }
    int64_t position_of(const Block& b, int col) const {
        return b.sequence->first_position + (b.first_col + col) / a_.heads;
    }

    const MlaArgs& a_;
    const CpuOps& op_;
    const bool bf16_;
    const int width_;
    const int element_;  // bytes
};

// [width][16] float32, or [width / 2][16][2] bfloat16; columns that are not used are zero.
void Attention::pack_q(const Block& b, int group, std::byte* out) const {
    std::memset(out, 0, q_bytes());
    for (int c = 0; c < cols_of(b, group); ++c) {
        const int col = b.first_col + group * kMlaGroupCols + c;
        const std::byte* q = a_.q.row(b.sequence->first_row + col / a_.heads) +
                             static_cast<int64_t>(col % a_.heads) * width_ * element_;
        // A pair of bfloat16 moves as one float32 would.
        for (int k = 0; k < width_ * element_ / 4; ++k)
            std::memcpy(out + (k * kMlaGroupCols + c) * 4, q + k * 4, 4);
    }
}

void Attention::fill_runs(const Block& b, int64_t token, MlaTile& tile, std::byte* copy) const {
    const auto* pool = static_cast<const std::byte*>(a_.kv_layer);
    const auto address = [&](int64_t i) {
        const int64_t slot =
            int64_t{b.sequence->blocks[i / a_.page_size]} * a_.page_size + i % a_.page_size;
        return pool + slot * width_ * element_;
    };
    for (int r = 0; r < ceil_div(tile.num_tokens, kMlaRunTokens); ++r) {
        const int64_t begin = token + r * kMlaRunTokens;
        const int64_t tokens = std::min<int64_t>(kMlaRunTokens, token + tile.num_tokens - begin);
        if (a_.page_size % kMlaRunTokens == 0 && tokens == kMlaRunTokens) {
            tile.runs[r] = address(begin);
            continue;
        }
        // Copied: it lies in several pages, or its end was never written and may hold anything.
        const size_t bytes = static_cast<size_t>(width_ * element_);
        std::byte* run = copy + static_cast<size_t>(r * kMlaRunTokens) * bytes;
        for (int64_t i = 0; i < tokens; ++i)
            std::memcpy(run + i * bytes, address(begin + i), bytes);
        std::memset(run + tokens * bytes, 0, (kMlaRunTokens - tokens) * bytes);
        tile.runs[r] = run;
    }
}

// One chunk of KV for all groups of a block that see some of it.
void Attention::run_chunk(const Block& b, int chunk, const std::byte* q, std::byte* partials,
                          std::byte* copy, void* tile_scratch) const {
    MlaGroup groups[kBlockGroups];
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
                     {}};
            int group_most = 0;
            for (int c = 0; c < group.num_cols; ++c) {
                const int64_t seen =
                    local_tokens(a_, position_of(b, g * kMlaGroupCols + c)) - token;
                group.limit[c] = static_cast<int32_t>(std::clamp<int64_t>(seen, 0, kMlaTileTokens));
                group_most = std::max(group_most, group.limit[c]);
            }
            if (group_most == 0 && token > begin) continue;
            most = std::max(most, group_most);
            ++num;
        }
        if (num == 0) break;
        if (most == 0) {  // no token of this chunk for anybody
            for (int g = 0; g < num; ++g) {
                std::fill_n(groups[g].max, kMlaGroupCols, -std::numeric_limits<float>::infinity());
                std::fill_n(groups[g].sum, kMlaGroupCols, 0.0f);
                std::fill_n(groups[g].acc, kMlaGroupCols * a_.latent_dim, 0.0f);
            }
            break;
        }
        tile.groups = groups;
        tile.num_groups = num;
        tile.num_tokens = most;
        tile.first = token == begin;
        tile.latent = a_.latent_dim;
        tile.width = width_;
        tile.scale = a_.scale * 1.44269504f;
        tile.scratch = tile_scratch;
        fill_runs(b, token, tile, copy);
        (bf16_ ? op_.mla_tile_bf16 : op_.mla_tile_f32)(tile);
    }
}

void Attention::merge(const Block& b, int group, Partial* into, Partial* from) const {
    MlaGroup to{nullptr, cols_of(b, group), into->max, into->sum, into->acc(), {}};
    const MlaGroup more{nullptr, to.num_cols, from->max, from->sum, from->acc(), {}};
    op_.mla_merge(to, more, a_.latent_dim);
}

void Attention::finish(const Block& b, int group, Partial& result) const {
    for (int c = 0; c < cols_of(b, group); ++c) {
        const int col = b.first_col + group * kMlaGroupCols + c;
        const int64_t row = b.sequence->first_row + col / a_.heads;
        const int head = col % a_.heads;
        const float sum = result.sum[c];
        (bf16_ ? op_.mla_finish_bf16 : op_.mla_finish_f32)(
            result.acc() + c * 16, sum > 0 ? 1.0f / sum : 0.0f, a_.latent_dim,
            {a_.out.row(row) + head * a_.latent_dim * static_cast<int64_t>(size_of(a_.out.dtype)),
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
    const size_t copy_bytes = static_cast<size_t>(kMlaTileTokens * width_ * element_);
    auto* q = static_cast<std::byte*>(
        memory.reserve(groups * (q_bytes() + 2 * partial_bytes()) + copy_bytes +
                       static_cast<size_t>(mla_scratch_bytes(width_))));
    std::byte* result = q + groups * q_bytes();
    std::byte* chunk_result = result + groups * partial_bytes();
    std::byte* copy = chunk_result + groups * partial_bytes();
    std::byte* scratch = copy + copy_bytes;
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
    const size_t copy_bytes = static_cast<size_t>(kMlaTileTokens * width_ * element_);
    auto* q = static_cast<std::byte*>(memory.reserve(
        groups * q_bytes() + copy_bytes + static_cast<size_t>(mla_scratch_bytes(width_))));
    std::byte* copy = q + groups * q_bytes();
    for (int g = 0; g < b.num_groups(); ++g) pack_q(b, g, q + static_cast<size_t>(g) * q_bytes());
    std::byte* mine = parts + static_cast<size_t>(b.first_part + int64_t{chunk} * b.num_groups()) *
                                  partial_bytes();
    run_chunk(b, chunk, q, mine, copy, copy + copy_bytes);
}

void Attention::run(Stream& stream) {
    static thread_local Scratch block_memory, part_memory;
    const int cols_per_block = kBlockGroups * kMlaGroupCols;
    int64_t num_blocks = 0, num_items = 0, num_parts = 0;
    for (const MlaSequence& s : a_.sequences)
        num_blocks += ceil_div(int64_t{s.num_rows} * a_.heads, cols_per_block);
    auto* blocks = block_memory.reserve_as<Block>(static_cast<size_t>(num_blocks));
    int64_t n = 0;
    for (const MlaSequence& s : a_.sequences) {
        const int cols = s.num_rows * a_.heads;
        for (int col = 0; col < cols; col += cols_per_block) {
            Block& b = blocks[n++];
            b = {&s, col, std::min(cols_per_block, cols - col), 1, num_parts};
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
    const int64_t width = a.latent_dim + a.rope_dim;
    CHECK(a.latent_dim > 0 && a.latent_dim % 32 == 0 && a.latent_dim <= 1024 && a.rope_dim >= 0 &&
              a.rope_dim % 32 == 0 && a.rope_dim <= 256,
          "latent {} rope {}", a.latent_dim, a.rope_dim);
    CHECK(
        a.heads > 0 && a.page_size > 0 && a.cp_size > 0 && a.cp_rank >= 0 && a.cp_rank < a.cp_size,
        "{} heads, page {}, cp {} of {}", a.heads, a.page_size, a.cp_rank, a.cp_size);
    check_float("q", a.q.dtype);
    check_float("out", a.out.dtype);
    CHECK(a.q.cols == a.heads * width && a.out.cols == int64_t{a.heads} * a.latent_dim,
          "q has {} columns, out {}, for {} heads", a.q.cols, a.out.cols, a.heads);
    CHECK(a.scale > 0, "scale {}", a.scale);
    CHECK(a.lse != nullptr || a.cp_size == 1, "cp {} without lse", a.cp_size);
    for (const MlaSequence& s : a.sequences)
        CHECK(s.first_row >= 0 && s.first_row + s.num_rows <= std::min(a.q.rows, a.out.rows) &&
                  s.first_position >= 0,
              "rows {} + {} of {}, position {}", s.first_row, s.num_rows, a.q.rows,
              s.first_position);
}

}  // namespace

void mla_attention(Stream& stream, const MlaArgs& args) {
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
    const int64_t latent = args.out.cols / args.heads;
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
        auto* sum = memory.reserve_as<float>(static_cast<size_t>(latent));
        for (size_t r = 0; r < ranks; ++r) {
            weights[r] = {0, total > 0 ? factors[r] / total : 0.0f};
            op.accumulate({args.partials[r].row(row) + head * latent * 4, false}, 0, &weights[r], 1,
                          r == 0, latent, {sum, false});
        }
        const RowIn source{sum, false};
        op.sum(&source, 1, latent,
               {args.out.row(row) + head * latent * static_cast<int64_t>(size_of(args.out.dtype)),
                args.out.dtype == DType::kBF16});
    };
    parallel_rows(stream, args.out.rows, args.out.cols * 4 * static_cast<int64_t>(ranks + 1),
                  [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i)
                          for (int h = 0; h < args.heads; ++h) merge_head(i, h);
                  });
}

}  // namespace aerie::kernels
