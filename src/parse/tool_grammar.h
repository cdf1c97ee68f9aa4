// What an answer looks like that must call tools, as a grammar (request/request.h, kToolCalls).
#pragma once

#include <span>
#include <string>

#include "base/json.h"
#include "parse/formats.h"

namespace aerie::parse {

// Calls of these tools ({"function": {name, parameters}} each, not empty) in the format, one or,
// with one_call, exactly one, and nothing beside them. The arguments obey the tool's parameters.
std::string tool_call_grammar(ToolFormat format, std::span<const Json> tools, bool one_call);

}  // namespace aerie::parse
