// Anthropic's request bodies → Call.
#pragma once

#include "api/call.h"
#include "api/error.h"
#include "base/json.h"

namespace aerie::anthropic {

// POST /v1/messages. max_tokens is what the answer may have at most, not what it must have room for:
// agents ask for 32,000 on top of long prompts.
//
// system and content blocks become messages as chat templates know them: each tool_result is one of
// the role "tool", in the blocks' order; an error's text begins with "Error: ". Texts of one message
// are joined by line breaks. A last message of the assistant is the beginning of the answer. Of past
// thinking the template gets reasoning_content; redacted_thinking is left out. thinking sets the
// template's variable of that name; its budget cannot be enforced and plays no part.
api::MaybeError parse_messages(const Json& body, const api::CallDefaults& defaults,
                               api::Call& call);

// POST /v1/messages/count_tokens: the same without what concerns the answer.
api::MaybeError parse_count(const Json& body, const api::CallDefaults& defaults, api::Call& call);

}  // namespace aerie::anthropic
