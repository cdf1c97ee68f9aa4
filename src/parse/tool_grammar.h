// What an answer looks like that must call tools, as a grammar (request/request.h, kToolCalls).
#pragma once

#include <span>
#include <string>

#include "base/json.h"
#include "parse/formats.h"

namespace aerie::parse {

// False: the schema's const or enum holds no object, which the arguments of a call always are.
bool may_be_arguments(const Json& schema);

// Calls of these tools ({"function": {name, parameters}} each, not empty) in the format, one or,
// with one_call, exactly one, and nothing beside them. The arguments obey the tool's parameters,
// which may_be_arguments(), and are an object, even where those have another type.
std::string tool_call_grammar(ToolFormat format, std::span<const Json> tools, bool one_call);

}  // namespace aerie::parse
