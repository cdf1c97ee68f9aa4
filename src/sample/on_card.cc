#include "sample/on_card.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "sample/noise.h"

namespace aerie::sample {
namespace {

constexpr double kGreedyBelow = 1e-6;  // as SGLang

}  // namespace

bool is_greedy(const SamplingParams& params) {
    return !(params.temperature >= kGreedyBelow) || params.top_k == 1;
}

Error not_finite(int32_t id, float logit) {
    return error("the logit of token {} is {}, a finite number was expected", id, logit);
}

Error none_is_left() { return error("no token is left to be sampled: all are ruled out"); }

std::optional<kernels::DrawParams> draw_on_card(const SamplerOptions& options,
                                                const SamplingParams& params, int num_output,
                                                int64_t position) {
    const bool changes_logits = params.frequency_penalty != 0 || params.presence_penalty != 0 ||
                                params.repetition_penalty != 1 || !params.logit_bias.empty() ||
                                num_output < params.min_new_tokens ||
                                params.grammar.kind != Grammar::Kind::kNone;
    if (changes_logits) return std::nullopt;
    kernels::DrawParams draw{.num_ids = options.num_ids};
    if (is_greedy(params)) return draw;
    draw.noise_base =
        noise_base({.seed = params.seed, .choice = params.choice, .position = position});
    draw.inverse_temperature = 1 / params.temperature;
    if (draw.inverse_temperature == 0) return std::nullopt;
    draw.top_p = std::max(params.top_p, 0.0);
    draw.top_k = std::max(params.top_k, 0);
    if (params.min_p > 0) draw.least_gap = std::log(std::min(params.min_p, 1.0));
    return draw;
}

Result<int32_t> token_of(const kernels::Drawn& drawn, const SamplerOptions& options) {
    CHECK(drawn.id >= 0 && drawn.id < options.num_ids, "a card has drawn token {} of {}", drawn.id,
          options.num_ids);
    if (std::isfinite(drawn.logit)) return drawn.id;
    if (drawn.logit < 0) return none_is_left();
    return not_finite(drawn.id, drawn.logit);
}

}  // namespace aerie::sample
