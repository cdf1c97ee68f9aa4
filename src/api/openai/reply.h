// OpenAI's reply bodies: whole, streamed, and errors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/error.h"
#include "api/reply.h"

namespace aerie::openai {

// {"error": {message, type, param, code}, "object": "error", message, type, code}: the nested object
// is what OpenAI's clients read, the rest what SGLang's do.
api::Body error_body(const api::ApiError& error);

// What a reply says beside the engine's output. A chat's tool calls get their ids here.
struct ReplyHeader {
    std::string id;
    std::string model;
    int64_t created = 0;  // Unix time
    int n = 1;            // choices for each prompt: choice / n is a choice's prompt
    bool include_usage = false, continuous_usage_stats = false;
    bool return_token_ids = false, logits_hash = false, logprobs = false;
    std::vector<std::vector<int32_t>> prompt_token_ids;  // [prompt]; empty: not asked for
    std::vector<std::string> echo;                       // [prompt]; empty: not asked for
};

std::unique_ptr<api::ReplyFormat> chat_reply(ReplyHeader header);
std::unique_ptr<api::ReplyFormat> completion_reply(ReplyHeader header);

}  // namespace aerie::openai
