// What of a chat request concerns tools and reasoning.
#pragma once

#include "api/call.h"
#include "api/error.h"
#include "base/json.h"

namespace aerie::openai {

// tools, tool_choice, parallel_tool_calls → call.parser and chat.tools. As in SGLang the template is
// not told of tools that the model must not call (tool_choice "none").
api::MaybeError read_tools(const Json& body, const api::CallDefaults& defaults, api::Call& call,
                           api::ChatPrompt& chat);

// A list of tools, {"type": "function", "function": {name, description, parameters}} each. `into`:
// the same with the members that templates expect; `names`: theirs.
api::MaybeError read_tool_list(const Json& tools, const RequestLimits& limits, Json& into,
                               std::vector<std::string>& names);

// separate_reasoning, stream_reasoning, reasoning_effort → call.parser and the template's variables.
// reasoning_effort is given to the template; "none" means chat_template_kwargs.thinking false where
// that says nothing.
api::MaybeError read_reasoning(const Json& body, const api::CallDefaults& defaults, api::Call& call,
                               api::ChatPrompt& chat);

}  // namespace aerie::openai
