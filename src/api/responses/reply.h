// Reply bodies of OpenAI's Responses API: whole, and as events.
#pragma once

#include <memory>
#include <string>

#include "api/reply.h"
#include "api/responses/request.h"

namespace aerie::responses {

struct ReplyHeader {
    std::string model;
    int64_t created = 0;  // Unix time
    double temperature = 1, top_p = 1;
    Given given;
    // Gets the conversation with the answer, unless given.store is false. Shared: a reply may be
    // written after the server that made it has gone.
    std::shared_ptr<Conversations> conversations;
};

// The output's items are reasoning, message and function_call, in the order in which the model wrote
// them. A stream is response.created, response.in_progress, for each item output_item.added, its
// parts and deltas and output_item.done, and response.completed, or response.incomplete where a limit
// ended it; events count up in sequence_number. Errors are OpenAI's.
std::unique_ptr<api::ReplyFormat> responses_reply(ReplyHeader header);

}  // namespace aerie::responses
