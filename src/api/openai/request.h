// OpenAI's request bodies → Call.
#pragma once

#include "api/call.h"
#include "api/error.h"
#include "base/json.h"

namespace aerie::openai {

// POST /v1/chat/completions
api::MaybeError parse_chat(const Json& body, const api::CallDefaults& defaults, api::Call& call);

// POST /v1/completions. prompt: a text, a list of texts, token ids, or a list of such lists.
api::MaybeError parse_completion(const Json& body, const api::CallDefaults& defaults,
                                 api::Call& call);

// `messages` of a chat, checked, and as templates expect them: content is one string, the role
// "developer" is "system", and only an assistant's message with tool calls has no content.
api::MaybeError read_messages(const Json& messages, Json& into);

}  // namespace aerie::openai
