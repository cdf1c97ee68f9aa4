// Anthropic's system and messages → messages as chat templates know them (api/openai/request.h).
#pragma once

#include "api/error.h"
#include "base/json.h"

namespace aerie::anthropic {

// Each appends to `into`. After read_messages it is not empty.
api::MaybeError read_system(const Json& system, Json& into);
api::MaybeError read_messages(const Json& messages, Json& into);

}  // namespace aerie::anthropic
