#include "kernels/cuda/mla_step.h"

#include "kernels/cuda/expanded.h"
#include "kernels/cuda/fp8_gemm.h"
#include "kernels/cuda/kernels.h"
#include "tensor/cuda/check.h"

namespace aerie::kernels {
namespace {

constexpr int kLatent = 512, kRope = 64, kWidth = kLatent + kRope;
constexpr int kKeys = 192, kValues = 128, kKeysAndValues = 256;  // columns of a head

int num_processors() {
    int device = 0, count = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    return count;
}

}  // namespace

MlaStep::Impl::Impl(const Limits& limits, const Shape& s)
    : shape(s),
      plan({.heads = s.heads,
            .page_size = s.page_size,
            .max_rows = limits.max_rows,
            .max_blocks = limits.max_blocks,
            .num_processors = num_processors(),
            .balanced = !s.deterministic}),
      ints(plan.max_ints() * sizeof(int32_t), Device::kCuda),
      partial(plan.max_partial_rows() * kLatent * sizeof(BF16), Device::kCuda),
      partial_lse(plan.max_partial_rows() * sizeof(float), Device::kCuda) {
    CHECK(s.latent_dim == kLatent && s.rope_dim == kRope,
          "latent {} and rope {}, expected 512 and 64", s.latent_dim, s.rope_dim);
    CHECK(limits.max_rows * s.heads * kWidth <= INT32_MAX, "{} rows of {} heads", limits.max_rows,
          s.heads);
    if (limits.piece_tokens > 0) expanded.emplace(limits, s);
    for (Staging& t : staging) {
        t.ints = PinnedBuffer(plan.max_ints() * sizeof(int32_t));
        if (expanded) t.expanded_ints = PinnedBuffer(expanded->ints.size());
        CUDA_CHECK(cudaEventCreateWithFlags(&t.sent, cudaEventDisableTiming));
    }
}

MlaStep::Impl::~Impl() {
    for (Staging& t : staging) {
        CUDA_CHECK(cudaEventSynchronize(t.sent));
        CUDA_CHECK(cudaEventDestroy(t.sent));
    }
}

MlaStep::Impl::Expanded::Expanded(const Limits& limits, const Shape& s)
    : plan({.page_size = s.page_size,
            .max_rows = limits.max_rows,
            .max_blocks = limits.max_blocks,
            .piece_tokens = limits.piece_tokens}),
      ints(plan.max_ints() * sizeof(int32_t), Device::kCuda),
      latents(DType::kBF16, limits.piece_tokens, kWidth, Device::kCuda),
      kv(DType::kBF16, limits.piece_tokens, int64_t{s.heads} * kKeysAndValues, Device::kCuda),
      other(DType::kBF16, limits.max_rows, int64_t{s.heads} * kValues, Device::kCuda),
      lse(DType::kF32, limits.max_rows, s.heads, Device::kCuda),
      other_lse(DType::kF32, limits.max_rows, s.heads, Device::kCuda) {}

MlaStep::MlaStep(const Limits& limits, const Shape& shape)
    : impl_(std::make_unique<Impl>(limits, shape)) {}
MlaStep::~MlaStep() = default;

void MlaStep::prepare(Stream& stream, std::span<const MlaSequence> absorbed, int64_t num_rows,
                      std::span<const MlaSequence> expanded) {
    if (num_rows == 0)
        for (const MlaSequence& s : absorbed) num_rows += s.num_rows;
    Impl& m = *impl_;
    Impl::Staging& staging = m.staging[m.turn ^= 1];
    CUDA_CHECK(cudaEventSynchronize(staging.sent));
    const auto send = [&](Buffer& to, PinnedBuffer& from, int64_t count) {
        card::copy(stream.queue(), to.data(), from.as<int32_t>(), count * sizeof(int32_t));
    };
    m.layout = {};
    if (num_rows > 0) {
        m.layout = m.plan.layout(num_rows);
        send(m.ints, staging.ints, m.plan.make(absorbed, num_rows, staging.ints.as<int32_t>()));
    }
    // What the products of a whole piece need, even if the first step has a smaller one.
    if (m.expanded)
        stream.card_scratch(Stream::CardScratch::kGemm,
                            cuda::Fp8Rows::num_bytes(m.expanded->latents.rows(), kLatent));
    if (!expanded.empty()) {
        CHECK(m.expanded, "{} sequences to expand, with no pieces", expanded.size());
        send(m.expanded->ints, staging.expanded_ints,
             m.expanded->plan.make(expanded, staging.expanded_ints.as<int32_t>()));
    }
    CUDA_CHECK(cudaEventRecord(staging.sent, static_cast<cudaStream_t>(stream.queue())));
}

namespace cuda {
namespace {

void check_expanded(const MlaArgs& a, const MlaStep::Impl& m) {
    CHECK(m.expanded && a.heads == m.shape.heads && a.page_size == m.shape.page_size &&
              a.latent_dim == kLatent && a.rope_dim == kRope && a.cp_size == 1,
          "{} heads, pages of {}, latent {}, rope {}, cp_size {}; prepared for {} and {}", a.heads,
          a.page_size, a.latent_dim, a.rope_dim, a.cp_size, m.shape.heads, m.shape.page_size);
    CHECK(a.expand_kv->n() == int64_t{a.heads} * kKeysAndValues && a.expand_kv->k() == kLatent,
          "keys and values by [{}, {}] for {} heads", a.expand_kv->n(), a.expand_kv->k(), a.heads);
    CHECK(a.q.dtype == DType::kBF16 && a.out.dtype == DType::kBF16 &&
              a.q.cols == int64_t{a.heads} * kKeys && a.out.cols == int64_t{a.heads} * kValues &&
              a.q.rows <= m.expanded->other.rows() && a.out.rows == a.q.rows,
          "q [{}, {}] {}, out [{}, {}] {}", a.q.rows, a.q.cols, name_of(a.q.dtype), a.out.rows,
          a.out.cols, name_of(a.out.dtype));
    CHECK(a.lse == nullptr, "lse of expanded attention on the card");
}

// Rows over one piece, whose latents, keys and values are there.
void attend_piece(Stream& stream, const MlaArgs& a, MlaStep::Impl::Expanded& e,
                  const ExpandPlan::Piece& piece) {
    const View latents = e.latents.first_rows(piece.num_tokens);
    const View other = e.other.first_rows(a.q.rows);
    for (const bool joined : {false, true}) {
        for (const bool causal : {false, true}) {
            const ExpandPlan::Part& tiles = piece.tiles[joined][causal];
            attend_tiles(stream, {.q = a.q,
                                  .kv = e.kv.first_rows(piece.num_tokens),
                                  .k_pe = latents.slice_cols(kLatent, kWidth),
                                  .tiles = reinterpret_cast<const ExpandPlan::Tile*>(
                                      e.ints.as<int32_t>() + tiles.at),
                                  .num_tiles = tiles.count,
                                  .heads = a.heads,
                                  .causal = causal,
                                  .scale = a.scale,
                                  .out = joined ? other : a.out,
                                  .lse = (joined ? e.other_lse : e.lse).data<float>()});
        }
    }
    if (piece.num_joined_rows == 0) return;
    const int begin = piece.first_joined_row, end = begin + piece.num_joined_rows;
    join_results(stream, {.out = a.out.slice_rows(begin, end),
                          .lse = e.lse.data<float>() + int64_t{begin} * a.heads,
                          .other = other.slice_rows(begin, end),
                          .other_lse = e.other_lse.data<float>() + int64_t{begin} * a.heads,
                          .heads = a.heads});
}

}  // namespace

void expanded_attention(Stream& stream, const MlaArgs& a) {
    check_expanded(a, a.step->impl());
    MlaStep::Impl::Expanded& e = *a.step->impl().expanded;
    const auto* ints = e.ints.as<int32_t>();
    for (const ExpandPlan::Piece& piece : e.plan.pieces()) {
        const View latents = e.latents.first_rows(piece.num_tokens);
        gather_latents(
            stream,
            {.kv_layer = a.kv_layer,
             .page_size = a.page_size,
             .segments = reinterpret_cast<const ExpandPlan::Segment*>(ints + piece.segments.at),
             .num_segments = piece.segments.count,
             .page_table = ints,
             .out = latents});
        linear(stream, {.x = latents.slice_cols(0, kLatent),
                        .w = a.expand_kv,
                        .y = e.kv.first_rows(piece.num_tokens)});
        attend_piece(stream, a, e, piece);
    }
}

void mla_attention(Stream& stream, const MlaArgs& args) {
    CHECK(args.step != nullptr && args.expand_k == nullptr && args.expand_v == nullptr,
          "attention on the card without an MlaStep, or expanded head by head");
    args.expand_kv != nullptr ? expanded_attention(stream, args) : absorbed_attention(stream, args);
}

}  // namespace cuda
}  // namespace aerie::kernels
