// What follows attention in a layer: the dense MLP, or gate, dispatch and shared expert.
#include "kernels/gate.h"
#include "model/attention_rank_impl.h"

namespace aerie::model {
namespace {

kernels::Scoring scoring_of(ScoringFunc scoring) {
    return scoring == ScoringFunc::kSigmoid ? kernels::Scoring::kSigmoid
                                            : kernels::Scoring::kSoftmax;
}

kernels::TopkMethod method_of(TopkMethod method) {
    switch (method) {
        case TopkMethod::kNoauxTc: return kernels::TopkMethod::kNoauxTc;
        case TopkMethod::kGroupLimitedGreedy: return kernels::TopkMethod::kGroupLimitedGreedy;
        case TopkMethod::kGreedy: break;
    }
    return kernels::TopkMethod::kGreedy;
}

}  // namespace

Status AttentionRank::Impl::ffn(int layer, int microbatch, Phase phase) {
    const LayerWeights& w = weights.layers[layer];
    const Range rows = layout.own_of(microbatch);
    const kernels::ExpertWeights* local = w.is_moe ? w.shared : w.dense;
    if (w.is_moe) RETURN_IF_ERROR(route(layer, microbatch, phase));
    if (rows.size() == 0) return {};
    // Here, while the routed tokens are on their way.
    const View sum = own(ws.sum, rows);
    if (local != nullptr) {
        kernels::dense_ffn(stream, own(ws.h, rows), *local, sum, ws.ffn);
    } else {
        stream.zero(sum.data, static_cast<size_t>(rows.size() * sum.cols) * size_of(sum.dtype));
    }
    end_of(StepOp::kLocalFfn);
    return {};
}

// Sends the rows of h to the experts that the gate chooses.
Status AttentionRank::Impl::route(int layer, int microbatch, Phase phase) {
    const LayerWeights& w = weights.layers[layer];
    const Range rows = layout.own_of(microbatch);
    const View h = own(ws.h, rows), logits = ws.gate_logits.first_rows(rows.size());
    if (rows.size() > 0) {
        kernels::linear(stream, {.x = h, .w = w.gate, .y = logits});
        kernels::gate(stream,
                      {.logits = logits,
                       .bias = w.gate_bias != nullptr ? w.gate_bias->data<float>() : nullptr,
                       .scoring = scoring_of(config.scoring_func),
                       .method = method_of(config.topk_method),
                       .num_groups = config.n_group,
                       .topk_group = config.topk_group,
                       .top_k = config.num_experts_per_tok,
                       .norm_topk_prob = config.norm_topk_prob,
                       .routed_scaling_factor = static_cast<float>(config.routed_scaling_factor),
                       .ids = ws.gate_ids.data<int32_t>(),
                       .weights = ws.gate_weights.data<float>()});
    }
    end_of(StepOp::kGate);
    RETURN_IF_ERROR(options.experts->dispatch({.slot = microbatch,
                                               .layer = layer,
                                               .phase = phase,
                                               .hidden = h,
                                               .ids = ws.gate_ids.data<int32_t>(),
                                               .weights = ws.gate_weights.data<float>(),
                                               .topk = config.num_experts_per_tok}));
    end_of(StepOp::kDispatch);
    in_flight[microbatch] = true;
    return {};
}

}  // namespace aerie::model
