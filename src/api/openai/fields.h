// The fields of OpenAI's requests: one table says which there are, reads and checks them, and
// refuses those that are not built yet. Fields that are not in it are ignored.
#pragma once

#include <string>
#include <string_view>

#include "api/call.h"
#include "api/error.h"
#include "base/json.h"

namespace aerie::openai {

enum Endpoint : unsigned { kChat = 1, kCompletion = 2 };

// Reads all fields of `body` but messages, prompt, and those of tools.h into `call`, whose sampling holds the defaults.
// The first mistake in the order of the table is returned.
api::MaybeError read_fields(const Json& body, Endpoint endpoint, const api::CallDefaults& defaults,
                            api::Call& call);

// "got 3", "got "text…"": a value for an error message, cut short.
std::string got(const Json& value);

// "FIELD must be EXPECTED, got VALUE".
api::ApiError wrong(std::string field, std::string_view expected, const Json& value);

}  // namespace aerie::openai
