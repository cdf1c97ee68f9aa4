// Attention of one layer and microbatch: h [own rows] → x and h [own rows].
#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/norm.h"
#include "kernels/qkv.h"
#include "kernels/rope.h"
#include "kernels/rows.h"
#include "model/attention_rank_impl.h"

namespace aerie::model {

Status AttentionRank::Impl::attention(int layer, int microbatch, LayerObserver* observer) {
    project_down(layer, layout.own_of(microbatch));
    end_of(StepOp::kProjectDown);
    RETURN_IF_ERROR(gather_qkv(microbatch));
    end_of(StepOp::kGather);
    RETURN_IF_ERROR(write_kv(layer, layout.rows_of(microbatch)));
    end_of(StepOp::kWriteKv);
    if (options.kv_leaves && stream.on_card()) card::synchronize(stream.queue());
    if (observer != nullptr) observer->layer_done(layer, microbatch);
    const Range tiles = layout.tiles_of(microbatch);
    for (int64_t tile = tiles.begin; tile < tiles.end; ++tile)
        RETURN_IF_ERROR(attend_tile(layer, tile));
    return {};
}

// h → q_a, latent and k_pe of the own rows, normed and rotated. A rank that is alone has all rows, and
// writes their KV too.
void AttentionRank::Impl::project_down(int layer, Range rows) {
    if (rows.size() == 0) return;
    const LayerWeights& w = weights.layers[layer];
    const auto eps = static_cast<float>(config.rms_norm_eps);
    const View h = own(ws.h, rows), qkv = own(ws.qkv, rows);
    const View query = qkv.slice_cols(0, query_width);
    const View latent = qkv.slice_cols(query_width, query_width + config.kv_lora_rank);
    if (config.q_lora_rank > 0) {
        kernels::linear(stream, {.x = h, .w = w.q_a_kv_a, .y = qkv});
    } else {
        kernels::copy_rows(stream, h, query);
        kernels::linear(stream,
                        {.x = h, .w = w.q_a_kv_a, .y = qkv.slice_cols(query_width, qkv.cols)});
    }
    const float* query_norm = config.q_lora_rank > 0 ? w.q_a_norm->data<float>() : nullptr;
    const int32_t* positions = numbers.own_positions() + rows.begin;
    if (alone()) {
        return kernels::finish_qkv(stream, *options.rope,
                                   {.qkv = qkv,
                                    .query_width = query_width,
                                    .query_norm = query_norm,
                                    .latent_norm = w.kv_a_norm->data<float>(),
                                    .eps = eps,
                                    .positions = positions,
                                    .pool = pool_of(layer),
                                    .slots = numbers.slots() + rows.begin});
    }
    if (query_norm != nullptr) kernels::rms_norm(stream, query, query_norm, eps, query);
    kernels::rms_norm(stream, latent, w.kv_a_norm->data<float>(), eps, latent);
    kernels::rope(stream, *options.rope,
                  {.x = qkv,
                   .positions = positions,
                   .num_heads = 1,
                   .head_stride = qkv.cols,
                   .offset = query_width + config.kv_lora_rank});
}

// The rows of all ranks, so that this rank's heads and blocks can serve every row. The others' rows
// may be read until write_kv() ends the exchange.
Status AttentionRank::Impl::gather_qkv(int microbatch) {
    if (alone()) return {};
    auto shown = options.group->share(place.index(), ws.qkv.data<std::byte>());
    if (!shown) return shown.error();
    copy_from_all(*shown, ws.qkv, layout.tiles_of(microbatch), ws.all_qkv);
    return {};
}

void AttentionRank::Impl::copy_from_all(std::span<const void* const> shown, const Tensor& mine,
                                        Range tiles, Tensor& into) {
    for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
        for (int rank = 0; rank < place.size(); ++rank) {
            const Range rows = layout.share(tile, rank / place.tp_size, rank % place.tp_size);
            if (rows.size() == 0) continue;
            const int64_t from = layout.own_begin(tile, rank);
            const ConstView theirs(shown[rank], mine.dtype(), from + rows.size(), mine.cols());
            kernels::copy_rows(stream, theirs.slice_rows(from, from + rows.size()),
                               own(into, rows));
        }
    }
}

// The latents of the blocks that this cp rank holds, where it is not alone. One of the tp ranks, which share a pool, writes.
Status AttentionRank::Impl::write_kv(int layer, Range rows) {
    if (alone()) return {};
    if (place.tp == 0) {
        const kernels::KvPool pool = pool_of(layer);
        kernels::kv_write(stream, pool,
                          all_qkv()
                              .slice_rows(rows.begin, rows.end)
                              .slice_cols(query_width, query_width + pool.width),
                          numbers.slots() + rows.begin);
    }
    return options.group->done(place.index());
}

kernels::KvPool AttentionRank::Impl::pool_of(int layer) const {
    const KvPool& pool = *options.pool;
    return {.layer = options.pool->layer(layer),
            .dtype = pool.dtype(),
            .page_size = pool.page_size(),
            .width = pool.width()};
}

Status AttentionRank::Impl::attend_tile(int layer, int64_t tile) {
    const LayerWeights& w = weights.layers[layer];
    prepare_queries(w, tile);
    end_of(StepOp::kAbsorb);
    for (const bool expanded : {false, true}) attend_own_blocks(layer, tile, expanded);
    end_of(StepOp::kAttention);
    if (place.cp_size > 1) RETURN_IF_ERROR(merge_cp(tile));
    end_of(StepOp::kMergeCp);
    project_up(w, tile);
    end_of(StepOp::kOutput);
    RETURN_IF_ERROR(add_attention(w, tile));
    end_of(StepOp::kResidual);
    return {};
}

// Queries of the rank's heads for all rows of the tile, as each part's attention wants them.
void AttentionRank::Impl::prepare_queries(const LayerWeights& w, int64_t tile) {
    const Range rows = layout.tile(tile);
    const View q = ws.q.first_rows(rows.size());
    kernels::linear(
        stream,
        {.x = all_qkv().slice_rows(rows.begin, rows.end).slice_cols(0, query_width), .w = w.q_b, .y = q});
    end_of(StepOp::kQueries);
    for (const TilePart& part : layout.parts(tile)) {
        const View of_part = q.slice_rows(part.rows.begin, part.rows.end);
        const int32_t* positions = numbers.positions() + rows.begin + part.rows.begin;
        if (part.expanded) {
            kernels::rope(stream, *options.rope,
                          {.x = of_part,
                           .positions = positions,
                           .num_heads = weights.num_heads,
                           .head_stride = config.qk_head_dim(),
                           .offset = config.qk_nope_head_dim});
        } else {
            absorb_queries(w, of_part, positions, own(ws.absorbed, part.rows));
        }
    }
}

// q_nope · W_UK and the rotated q_pe.
void AttentionRank::Impl::absorb_queries(const LayerWeights& w, View q, const int32_t* positions,
                                         View absorbed) {
    const int64_t nope = config.qk_nope_head_dim, q_dim = config.qk_head_dim();
    const int64_t latent = config.kv_lora_rank, width = config.latent_dim();
    for (int64_t head = 0; head < weights.num_heads; ++head) {
        ws.tasks[head] = {.x = q.slice_cols(head * q_dim, head * q_dim + nope),
                          .w = &w.kv_heads->uk[head],
                          .y = absorbed.slice_cols(head * width, head * width + latent)};
    }
    kernels::linear_grouped(stream, ws.tasks);
    kernels::rope_to(stream, *options.rope,
                     {.x = q,
                      .positions = positions,
                      .num_heads = weights.num_heads,
                      .head_stride = q_dim,
                      .offset = nope},
                     absorbed, width, latent);
}

// The tile's rows of one form.
void AttentionRank::Impl::attend_own_blocks(int layer, int64_t tile, bool expanded) {
    const std::span<const kernels::MlaSequence> sequences = layout.sequences(tile, expanded);
    if (sequences.empty()) return;
    const bool split = place.cp_size > 1;
    const KvHeads& heads = *weights.layers[layer].kv_heads;
    const Range rows{0, layout.tile(tile).size()};
    kernels::mla_attention(
        stream, {.q = own(expanded ? ws.q : ws.absorbed, rows),
                 .kv_layer = options.pool->layer(layer),
                 .page_size = options.pool->page_size(),
                 .latent_dim = config.kv_lora_rank,
                 .rope_dim = config.qk_rope_head_dim,
                 .heads = weights.num_heads,
                 .cp_rank = place.cp,
                 .cp_size = place.cp_size,
                 .scale = static_cast<float>(config.softmax_scale()),
                 .sequences = sequences,
                 .step = mla ? &*mla : nullptr,
                 .expand_k = expanded && !mla ? heads.expand_k.data() : nullptr,
                 .expand_v = expanded && !mla ? heads.uv.data() : nullptr,
                 .expand_kv = expanded && mla ? &heads.expand_kv : nullptr,
                 .out = split ? own(ws.partial, rows).slice_cols(0, attended_width(expanded))
                              : own(attended(expanded), rows),
                 .lse = split ? ws.lse.data<float>() : nullptr});
}

// Joins what the cp ranks found in their blocks, for the rows of this cp rank and the rank's heads.
Status AttentionRank::Impl::merge_cp(int64_t tile) {
    struct Shown {
        const void* partial;
        const float* lse;
    };
    const Shown mine{ws.partial.data<std::byte>(), ws.lse.data<float>()};
    auto shown = options.group->share(place.index(), &mine);
    if (!shown) return shown.error();
    const Range tile_rows = layout.tile(tile);
    const int64_t from = layout.cp_share(tile, place.cp).begin - tile_rows.begin;
    const int64_t heads = weights.num_heads;
    for (const TilePart& part : layout.parts(tile)) {
        const Range rows = layout.in_cp_share(part, tile);
        if (rows.size() == 0) continue;
        ws.views.clear();
        ws.others_lse.clear();
        for (int cp = 0; cp < place.cp_size; ++cp) {
            const auto& theirs =
                *static_cast<const Shown*>((*shown)[cp * place.tp_size + place.tp]);
            const ConstView partial(theirs.partial, DType::kF32, tile_rows.size(),
                                    ws.partial.cols());
            ws.views.push_back(partial.slice_rows(from + rows.begin, from + rows.end)
                                   .slice_cols(0, attended_width(part.expanded)));
            ws.others_lse.push_back(theirs.lse + (from + rows.begin) * heads);
        }
        kernels::mla_merge(stream, {.partials = ws.views,
                                    .lse = ws.others_lse,
                                    .heads = static_cast<int>(heads),
                                    .out = own(attended(part.expanded), rows)});
    }
    return options.group->done(place.index());
}

// attended latents → values per head → this rank's part of o_proj's sum, for the cp share.
void AttentionRank::Impl::project_up(const LayerWeights& w, int64_t tile) {
    const int64_t num_rows = layout.cp_share(tile, place.cp).size();
    if (num_rows == 0) return;
    const int64_t latent = config.kv_lora_rank, v = config.v_head_dim;
    for (const TilePart& part : layout.parts(tile)) {
        if (part.expanded) continue;
        const Range rows = layout.in_cp_share(part, tile);
        const View latents = own(ws.attended, rows), values = own(ws.values, rows);
        for (int64_t head = 0; head < weights.num_heads; ++head) {
            ws.tasks[head] = {.x = latents.slice_cols(head * latent, (head + 1) * latent),
                              .w = &w.kv_heads->uv[head],
                              .y = values.slice_cols(head * v, (head + 1) * v)};
        }
        kernels::linear_grouped(stream, ws.tasks);
    }
    end_of(StepOp::kValues);
    kernels::linear(stream, {.x = ws.values.first_rows(num_rows),
                             .w = w.o,
                             .y = ws.projected.first_rows(num_rows)});
}

// x += the tp ranks' parts in rank order, for the own rows of the tile; h = norm(x).
Status AttentionRank::Impl::add_attention(const LayerWeights& w, int64_t tile) {
    const Range slice = layout.cp_share(tile, place.cp);
    const Range rows = layout.share(tile, place.cp, place.tp);
    const int64_t from = rows.begin - slice.begin, begin = layout.own_begin(tile, place.index());
    ws.views.clear();
    if (place.tp_size == 1) {
        ws.views.push_back(ws.projected.first_rows(rows.size()));
    } else {
        auto shown = options.group->share(place.index(), ws.projected.data<std::byte>());
        if (!shown) return shown.error();
        for (int tp = 0; tp < place.tp_size; ++tp) {
            const ConstView theirs((*shown)[place.cp * place.tp_size + tp], DType::kF32,
                                   slice.size(), ws.projected.cols());
            ws.views.push_back(theirs.slice_rows(from, from + rows.size()));
        }
    }
    const Range own_rows{begin, begin + rows.size()};
    if (rows.size() > 0) {
        kernels::add_partials_and_norm(stream, own(ws.x, own_rows), ws.views,
                                       w.post_attention_norm->data<float>(),
                                       static_cast<float>(config.rms_norm_eps), own(ws.h, own_rows));
    }
    return place.tp_size == 1 ? Status() : options.group->done(place.index());
}

}  // namespace aerie::model
