// Request bodies of OpenAI's Responses API → Call.
#pragma once

#include "api/call.h"
#include "api/error.h"
#include "api/responses/store.h"
#include "base/json.h"

namespace aerie::responses {

// What a response repeats of its request, and what is kept of it.
struct Given {
    Json repeated = Json::object();  // members of the request that the reply repeats
    Json messages;         // the conversation without instructions, as chat templates know it
    bool store = true;
};

// POST /v1/responses. input: a text, or items of the types message, function_call,
// function_call_output and reasoning (which is left out). instructions stand before the conversation
// and are not carried over to the next. tools: functions. text.format: text,
// json_object or json_schema.
api::MaybeError parse_responses(const Json& body, const api::CallDefaults& defaults,
                                Conversations& conversations, api::Call& call, Given& given);

}  // namespace aerie::responses
