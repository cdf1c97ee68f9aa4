// Draws of a card (kernels/sampling.h) that give what Sampler gives.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "kernels/sampling.h"
#include "request/request.h"
#include "sample/sampler.h"

namespace aerie::sample {

// What makes a card draw the token of this position, behind num_output others of the request. None
// where it cannot: with penalties, logit_bias, a grammar, or below min_new_tokens.
std::optional<kernels::DrawParams> draw_on_card(const SamplerOptions& options,
                                                const SamplingParams& params, int num_output,
                                                int64_t position);

// The token, or the error that Sampler has for such logits.
Result<int32_t> token_of(const kernels::Drawn& drawn, const SamplerOptions& options);

// What Sampler says too.
bool is_greedy(const SamplingParams& params);
Error not_finite(int32_t id, float logit);
Error none_is_left();

}  // namespace aerie::sample
