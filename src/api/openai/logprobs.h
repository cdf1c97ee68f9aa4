// Logprobs as OpenAI's replies hold them. Those below -9999, minus infinity too, are -9999.
#pragma once

#include <cstddef>
#include <vector>

#include "api/reply.h"
#include "base/json.h"

namespace aerie::openai {

// Chat: {"content": [{token, bytes, logprob, top_logprobs}], "refusal": null}.
Json chat_logprobs(const std::vector<api::TokenLogprob>& tokens);

// Completions: {tokens, token_logprobs, top_logprobs, text_offset}. offset: the first token's, in
// characters of the choice's text; becomes that of the token after these.
Json completion_logprobs(const std::vector<api::TokenLogprob>& tokens, size_t& offset);

}  // namespace aerie::openai
