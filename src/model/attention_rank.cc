#include "model/attention_rank.h"

#include "base/clock.h"
#include "kernels/norm.h"
#include "kernels/rows.h"
#include "model/attention_rank_impl.h"
#include "model/model_support.h"

namespace aerie::model {
namespace {

Status check_options(const AttentionRankOptions& o) {
    const RankPlaceInReplica& place = o.place;
    CHECK(o.config && o.weights && o.rope && o.pool && o.stream);
    CHECK(0 <= place.tp && place.tp < place.tp_size, "tp {} of {}", place.tp, place.tp_size);
    CHECK(0 <= place.cp && place.cp < place.cp_size, "cp {} of {}", place.cp, place.cp_size);
    CHECK(place.tp == o.weights->tp && place.tp_size == o.weights->tp_size,
          "weights of tp {} of {} for rank {} of {}", o.weights->tp, o.weights->tp_size, place.tp,
          place.tp_size);
    CHECK(place.size() == 1 || (o.group != nullptr && o.group->size() == place.size()));
    CHECK(o.max_rows >= 1 && o.tile_rows >= 1 && o.max_logits_rows >= 0);
    // A card's step is one stream of kernels: nobody to wait for, and nothing cut.
    CHECK(!o.stream->on_card() || (place.size() == 1 && o.tile_rows >= o.max_rows &&
                                   !o.weights->has_mtp),
          "a rank on the card is alone, with tiles of whole steps, without MTP");
    if (o.stream->on_card() && o.config->vocab_size > kernels::kMaxDrawIds) {
        return error("vocab_size {}: a card draws tokens from at most {}", o.config->vocab_size,
                     kernels::kMaxDrawIds);
    }
    if (o.pool->width() != o.config->latent_dim()) {
        return error("KV pool holds {} values a token, the model needs {}", o.pool->width(),
                     o.config->latent_dim());
    }
    if (o.pool->dtype() != o.weights->embedding->dtype()) {
        return error("KV pool is {}, the compute type is {}", name_of(o.pool->dtype()),
                     name_of(o.weights->embedding->dtype()));
    }
    if (o.pool->num_layers() < static_cast<int>(o.weights->layers.size())) {
        return error("KV pool has {} layers, the model {}", o.pool->num_layers(),
                     o.weights->layers.size());
    }
    for (size_t layer = 0; layer < o.weights->layers.size(); ++layer)
        CHECK(!o.weights->layers[layer].is_moe || o.experts != nullptr, "layer {}", layer);
    return {};
}

// For each head, absorbing takes latent · (nope + v) products a row (W_UK, W_UV) and 2 · latent +
// rope a pair of row and token; expanding, latent · (nope + v) a token that a row sees and nope +
// rope + v a pair. A row's own token costs both forms the same, so what tells is the tokens before:
// expanding pays where pairs · (2 · latent − nope − v) > tokens before · latent · (nope + v), that is
// from 171 rows over a long context at 512, 128 and 128.
double pairs_to_expand(const ModelConfig& c) {
    const double heads_dim = c.qk_nope_head_dim + c.v_head_dim;
    const double saved = 2.0 * c.kv_lora_rank - heads_dim;  // a pair
    return saved > 0 ? c.kv_lora_rank * heads_dim / saved : std::numeric_limits<double>::infinity();
}

StepLimits limits_of(const AttentionRankOptions& o) {
    return {.max_rows = o.max_rows,
            .tile_rows = std::min(o.tile_rows, o.max_rows),
            .max_logits_rows = o.max_logits_rows,
            .max_position = o.rope->max_position(),
            .vocab_size = o.config->vocab_size,
            .num_blocks = o.pool->num_blocks(),
            .page_size = o.pool->page_size(),
            .pairs_to_expand = o.weights->can_expand ? pairs_to_expand(*o.config)
                                                     : std::numeric_limits<double>::infinity()};
}

}  // namespace

Workspace::Workspace(const AttentionRankOptions& o, const StepLimits& limits) {
    const ModelConfig& c = *o.config;
    const DType compute = o.weights->embedding->dtype();
    const Device device = o.stream->device();
    // What is added to the residual: float32 where ranks' parts are summed, which a card has none of.
    const DType addend = o.stream->on_card() ? compute : DType::kF32;
    const auto tensor = [device](DType type, int64_t num_rows, int64_t cols) {
        return Tensor(type, num_rows, cols, device);
    };
    const int64_t rows = limits.max_rows;
    const int64_t own = max_own_rows(rows, limits.tile_rows, o.place.size());
    const int64_t hidden_size = c.hidden_size, heads = o.weights->num_heads;
    x = tensor(compute, own, hidden_size);
    h = tensor(compute, own, hidden_size);
    hidden = tensor(compute, own, hidden_size);
    sum = tensor(addend, own, hidden_size);
    const int64_t qkv_width = query_width_of(c) + c.latent_dim();
    qkv = tensor(compute, own, qkv_width);
    if (o.place.size() > 1) all_qkv = tensor(compute, rows, qkv_width);

    const int64_t tile = limits.tile_rows;
    const int64_t share = (tile + o.place.cp_size - 1) / o.place.cp_size;
    q = tensor(compute, tile, heads * c.qk_head_dim());
    absorbed = tensor(compute, tile, heads * c.latent_dim());
    if (o.place.cp_size > 1) {
        const int values = o.weights->can_expand ? c.v_head_dim : 0;
        const int width = std::max(c.kv_lora_rank, values);
        partial = tensor(DType::kF32, tile, heads * width);
        lse = tensor(DType::kF32, tile, heads);
    }
    attended = tensor(compute, share, heads * c.kv_lora_rank);
    values = tensor(compute, share, heads * c.v_head_dim);
    projected = tensor(addend, share, hidden_size);

    if (c.n_routed_experts > 0) {
        gate_logits = tensor(DType::kF32, own, c.n_routed_experts);
        gate_ids = tensor(DType::kI32, own, c.num_experts_per_tok);
        gate_weights = tensor(DType::kF32, own, c.num_experts_per_tok);
    }
    if (o.place.cp == 0) {
        logits_hidden = tensor(compute, limits.max_logits_rows, hidden_size);
        if (o.place.tp_size > 1)
            logits_part = tensor(DType::kF32, limits.max_logits_rows, o.weights->vocab.size());
        if (o.place.tp == 0)
            logits = tensor(DType::kF32, limits.max_logits_rows, c.vocab_size);
    }
    if (o.weights->has_mtp) {
        if (o.place.size() > 1) all_hidden = tensor(compute, rows, hidden_size);
        draft_input = tensor(compute, std::min(tile, own), 2 * hidden_size);
        hidden_of.reserve(static_cast<size_t>(own));
    }
    tasks.resize(static_cast<size_t>(heads));
    views.reserve(static_cast<size_t>(o.place.size()));
    if (o.stream->on_card()) add_card_buffers(c);
    others_lse.reserve(static_cast<size_t>(o.place.cp_size));
}

void Workspace::add_card_buffers(const ModelConfig& config) {
    static_assert(sizeof(kernels::Drawn) == sizeof(int64_t));
    told = Tensor(DType::kI64, 1, 2 * config.num_hidden_layers + 1 + logits.rows(), Device::kCuda);
    told_to_host = PinnedBuffer(told.num_bytes());
    logits_of_card = PinnedBuffer(logits.num_bytes());
}

size_t Workspace::num_bytes() const {
    size_t bytes = 0;
    for (const Tensor* t :
         {&x, &h, &hidden, &all_hidden, &sum, &qkv, &all_qkv, &q, &absorbed, &partial, &lse, &attended,
          &values, &projected, &gate_logits, &gate_ids, &gate_weights, &logits_hidden, &logits_part,
          &logits, &draft_input}) {
        bytes += t->num_bytes();
    }
    return bytes;
}

AttentionRank::Impl::Impl(const AttentionRankOptions& o, const StepLimits& limits)
    : options(o), config(*o.config), weights(*o.weights), place(o.place), stream(*o.stream),
      layout(o.place, limits), numbers(limits, o.stream->device()), ws(o, limits),
      query_width(query_width_of(config)) {
    if (!stream.on_card()) return;
    // As many as run, or as warm_up() makes of the largest step.
    const int64_t given = o.max_sequences > 0 ? o.max_sequences : o.max_rows;
    const int64_t sequences = std::max(given, (o.max_rows + longest_sequence() - 1) / longest_sequence());
    const int64_t blocks = (limits.max_position + limits.page_size - 1) / limits.page_size;
    mla.emplace(kernels::MlaStep::Limits{.max_rows = o.max_rows,
                                         .max_blocks = sequences * blocks,
                                         .piece_tokens = weights.can_expand ? piece_tokens() : 0},
                kernels::MlaStep::Shape{.heads = weights.num_heads,
                                        .page_size = limits.page_size,
                                        .latent_dim = config.kv_lora_rank,
                                        .rope_dim = config.qk_rope_head_dim,
                                        .deterministic = o.deterministic});
}

void AttentionRank::Impl::prepare(const StepInput& input, int64_t padded_rows) {
    numbers.set(stream, layout, input, padded_rows);
    if (!mla) return;
    CHECK(layout.num_tiles() == 1, "a card's step has one tile, here are {}", layout.num_tiles());
    mla->prepare(stream, layout.sequences(0, false), padded_rows, layout.sequences(0, true));
}

Status AttentionRank::Impl::forward(const StepInput& input, LayerObserver* observer) {
    if (options.profile != nullptr) options.profile->begin();
    num_drawn = 0;
    if (const StepGraph* step = graph_for(input)) {
        ++num_graph_steps;
        prepare(input, step->rows);
        step->graph.launch(stream.queue());
        num_logits_rows = std::ssize(input.logits_rows);
    } else {
        if (stream.on_card() && input.phase == Phase::kDecode) ++num_eager_steps;
        prepare(input);
        RETURN_IF_ERROR(compute(input, observer));
    }
    if (!stream.on_card()) return {};
    fetch_results(input);
    if (observer != nullptr) observer->launched();
    card::synchronize(stream.queue());
    if (observer != nullptr) report_times(*observer);
    return {};
}

Status AttentionRank::Impl::compute(const StepInput& input, LayerObserver* observer) {
    embed();
    end_of(StepOp::kEmbed);
    RETURN_IF_ERROR(run_layers({0, config.num_hidden_layers}, input.phase, observer));
    return finish(*weights.final_norm, input);
}

// Layer by layer, each microbatch in turn: while the experts work for one, the next computes.
Status AttentionRank::Impl::run_layers(Range layers, Phase phase, LayerObserver* observer) {
    for (auto layer = static_cast<int>(layers.begin); layer < layers.end; ++layer) {
        const LayerWeights& w = weights.layers[layer];
        for (int m = 0; m < layout.num_microbatches(); ++m) {
            if (layer > layers.begin) {
                RETURN_IF_ERROR(finish_ffn(m, *w.input_norm, ws.h));
            } else {
                kernels::rms_norm(stream, own(ws.x, layout.own_of(m)), w.input_norm->data<float>(),
                                  static_cast<float>(config.rms_norm_eps),
                                  own(ws.h, layout.own_of(m)));
            }
            end_of(StepOp::kResidual);
            stamp(2 * layer);
            const TimePoint start = Clock::now();
            RETURN_IF_ERROR(attention(layer, m, observer));
            stamp(2 * layer + 1);
            // On the card these calls only say what is to be done.
            if (observer != nullptr && !stream.on_card())
                observer->attention_time(layer, m, seconds_since(start));
            RETURN_IF_ERROR(ffn(layer, m, phase));
        }
    }
    return {};
}

Status AttentionRank::Impl::finish(const Tensor& norm, const StepInput& input) {
    for (int m = 0; m < layout.num_microbatches(); ++m)
        RETURN_IF_ERROR(finish_ffn(m, norm, ws.hidden));
    stamp(2 * config.num_hidden_layers);
    end_of(StepOp::kResidual);
    if (weights.has_mtp)
        RETURN_IF_ERROR(gather_all_hidden(static_cast<int64_t>(input.tokens.size())));
    RETURN_IF_ERROR(compute_logits(input));
    end_of(StepOp::kLogits);
    return {};
}

void AttentionRank::Impl::embed() {
    if (layout.num_own_rows() == 0) return;
    kernels::gather_rows(stream, weights.embedding->view(), numbers.own_tokens(),
                         ws.x.first_rows(layout.num_own_rows()));
}

Status AttentionRank::Impl::finish_ffn(int microbatch, const Tensor& norm,
                                       Tensor& into) {
    const Range rows = layout.own_of(microbatch);
    const auto eps = static_cast<float>(config.rms_norm_eps);
    const exchange::AttentionSide::Residual residual{.sum = own(ws.sum, rows),
                                                     .x = own(ws.x, rows),
                                                     .weight = norm.data<float>(),
                                                     .eps = eps,
                                                     .normed = own(into, rows)};
    if (std::exchange(in_flight[microbatch], false)) {
        RETURN_IF_ERROR(options.experts->combine_and_norm(microbatch, stream, residual));
        end_of(StepOp::kCombine);
    } else if (rows.size() > 0) {
        const ConstView addend = residual.sum;
        kernels::add_partials_and_norm(stream, residual.x, {&addend, 1}, residual.weight, eps,
                                       residual.normed);
    }
    return {};
}

// Nobody may wait for this rank, nor may a late answer of an expert be taken for the next step's.
void AttentionRank::Impl::abandon(const std::string& why) {
    if (options.group != nullptr) options.group->abort(why);
    if (options.experts != nullptr) options.experts->reset();
    for (bool& flag : in_flight) flag = false;
    num_hidden_rows = 0;
}

Result<std::unique_ptr<AttentionRank>> AttentionRank::create(const AttentionRankOptions& options) {
    RETURN_IF_ERROR(check_supported(*options.config));
    RETURN_IF_ERROR(check_options(options));
    auto impl = std::make_unique<Impl>(options, limits_of(options));
    if (options.stream->on_card()) RETURN_IF_ERROR(impl->make_graphs());
    return std::unique_ptr<AttentionRank>(new AttentionRank(std::move(impl)));
}

AttentionRank::AttentionRank(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AttentionRank::~AttentionRank() = default;

Status AttentionRank::forward(const StepInput& input, LayerObserver* observer) {
    RETURN_IF_ERROR(impl_->layout.build(input));
    const Status status = impl_->forward(input, observer);
    if (!status) impl_->abandon(status.message());
    return status;
}

Status AttentionRank::draft(const DraftInput& input, LayerObserver* observer) {
    RETURN_IF_ERROR(impl_->check(input));
    RETURN_IF_ERROR(impl_->layout.build(input.step));
    const Status status = impl_->draft(input, observer);
    if (!status) impl_->abandon(status.message());
    return status;
}

ConstView AttentionRank::logits() const { return impl_->logits(); }

std::span<const kernels::Drawn> AttentionRank::drawn() const { return impl_->drawn(); }

bool AttentionRank::on_card() const { return impl_->stream.on_card(); }

ConstView AttentionRank::hidden_rows() const { return impl_->all_hidden(); }

size_t AttentionRank::workspace_bytes() const { return impl_->ws.num_bytes(); }

uint64_t AttentionRank::num_graph_steps() const { return impl_->num_graph_steps; }

uint64_t AttentionRank::num_eager_steps() const { return impl_->num_eager_steps; }

}  // namespace aerie::model
