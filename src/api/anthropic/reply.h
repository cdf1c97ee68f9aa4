// Anthropic's reply bodies: whole, streamed, and errors.
#pragma once

#include <memory>
#include <string>

#include "api/error.h"
#include "api/reply.h"

namespace aerie::anthropic {

// {"type": "error", "error": {"type", "message"}}
api::Body error_body(const api::ApiError& error);
// 529 in the place of 503: the server cannot take the call now.
int status_of(const api::ApiError& error);

// A message's content is its thinking, text and tool_use blocks in the order in which the model wrote
// them. The stream is message_start, ping, for each block content_block_start, deltas and
// content_block_stop, then message_delta and message_stop. The input of a call whose arguments were
// cut off is {} in a whole reply; its stop_reason is max_tokens then.
std::unique_ptr<api::ReplyFormat> messages_reply(std::string model);

}  // namespace aerie::anthropic
