#include "api/openai/tools.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "api/openai/fields.h"
#include "api/openai/grammars.h"
#include "parse/tool_grammar.h"

namespace aerie::openai {
namespace {

using api::ApiError;
using api::MaybeError;

constexpr size_t kMaxToolName = 256;  // bytes

// A name has to fit on the line where the model writes it.
bool is_tool_name(const Json& name) {
    return name.is_string() && !name.as_string().empty() &&
           name.as_string().size() <= kMaxToolName &&
           std::none_of(name.as_string().begin(), name.as_string().end(),
                        [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '<'; });
}

MaybeError read_tool(const std::string& field, const Json& tool, Json& into) {
    if (!tool.is_object()) return wrong(field, "an object", tool);
    if (const Json& type = tool["type"]; !type.is_null() && type != Json("function")) {
        return wrong(field + ".type", "\"function\"", type);
    }
    Json function = tool["function"];
    const std::string name = field + ".function";
    if (!function.is_object()) return wrong(name, "an object", function);
    if (!is_tool_name(function["name"])) {
        return wrong(
            name + ".name",
            fmt::format("a text of 1 to {} bytes without line breaks and \"<\"", kMaxToolName),
            function["name"]);
    }
    if (const Json& text = function["description"]; !text.is_null() && !text.is_string()) {
        return wrong(name + ".description", "a string", text);
    }
    if (const Json& schema = function["parameters"]; !schema.is_null() && !schema.is_object()) {
        return wrong(name + ".parameters", "an object, a JSON schema", schema);
    }
    if (function["description"].is_null()) function.set("description", "");
    if (function["parameters"].is_null()) {
        function.set("parameters",
                     Json::object().set("type", "object").set("properties", Json::object()));
    }
    into = tool;
    into.set("type", "function").set("function", std::move(function));
    return {};
}

struct Choice {
    enum { kAuto, kNone, kRequired, kNamed } kind = kAuto;
    std::string name = {};  // of kNamed
};

MaybeError read_tool_choice(const Json& value, Choice& choice) {
    if (value.is_null() || value == Json("auto")) return {};
    if (value == Json("none") || value == Json("required")) {
        choice.kind = value == Json("none") ? Choice::kNone : Choice::kRequired;
        return {};
    }
    const Json& name = value["function"]["name"];
    if (value["type"] == Json("function") && name.is_string()) {
        choice = {Choice::kNamed, name.as_string()};
        return {};
    }
    return wrong("tool_choice",
                 "\"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": "
                 "{\"name\": …}}",
                 value);
}

// The grammar of an answer that must call one of the tools, or the one that is named.
MaybeError require_call(const Choice& choice, const Json& tools, parse::ToolFormat format,
                        api::Call& call) {
    Json allowed = Json::array();
    for (const Json& tool : tools.as_array()) {
        const bool is_named = tool["function"]["name"] == Json(choice.name);
        if (choice.kind != Choice::kRequired && !is_named) continue;
        if (!parse::may_be_arguments(tool["function"]["parameters"])) {
            return ApiError{.message = fmt::format("tool_choice asks for a call of \"{}\", whose "
                                                   "parameters allow no object: const and enum must "
                                                   "hold one",
                                                   tool["function"]["name"].as_string()),
                            .param = "tool_choice"};
        }
        allowed.push_back(tool);
    }
    if (allowed.as_array().empty()) {
        return ApiError{.message = fmt::format("tool_choice must name one of tools, got \"{}\"",
                                               choice.name.substr(0, kMaxToolName)),
                        .param = "tool_choice"};
    }
    const bool one_call = choice.kind == Choice::kNamed || call.parser.one_call;
    return set_grammar("tool_choice", Grammar::Kind::kToolCalls,
                       parse::tool_call_grammar(format, allowed.as_array(), one_call), call);
}

}  // namespace

MaybeError read_tool_list(const Json& tools, const RequestLimits& limits, Json& into,
                          std::vector<std::string>& names) {
    if (!tools.is_array()) return wrong("tools", "a list of tools", tools);
    const auto max = static_cast<size_t>(limits.max_tools);
    if (tools.as_array().size() > max) {
        return wrong("tools", fmt::format("a list of at most {} tools (http_max_tools)", max), tools);
    }
    into = Json::array();
    for (size_t i = 0; i < tools.as_array().size(); ++i) {
        Json tool;
        const std::string field = fmt::format("tools[{}]", i);
        if (auto error = read_tool(field, tools.as_array()[i], tool)) return error;
        names.push_back(tool["function"]["name"].as_string());
        into.push_back(std::move(tool));
    }
    return {};
}

MaybeError read_tools(const Json& body, const api::CallDefaults& defaults, api::Call& call,
                      api::ChatPrompt& chat) {
    call.parser.tools = defaults.formats.tools;
    Choice choice;
    if (auto error = read_tool_choice(body["tool_choice"], choice)) return error;
    const Json& parallel = body["parallel_tool_calls"];
    if (!parallel.is_null() && !parallel.is_bool()) {
        return wrong("parallel_tool_calls", "true or false", parallel);
    }
    call.parser.one_call = parallel == Json(false);
    Json tools = Json::array();
    std::vector<std::string> names;
    if (!body["tools"].is_null()) {
        if (auto error = read_tool_list(body["tools"], defaults.limits, tools, names)) return error;
    }
    const bool must_call = choice.kind == Choice::kRequired || choice.kind == Choice::kNamed;
    if (names.empty() && must_call) {
        return ApiError{.message = "tool_choice makes the model call a tool, and tools has none",
                        .param = "tool_choice"};
    }
    if (names.empty() || choice.kind == Choice::kNone) return {};
    if (defaults.formats.tools == parse::ToolFormat::kNone) {
        return ApiError{
            .message = fmt::format(
                "tools cannot be called: the model's chat template does not show how it "
                "writes calls, and the setting tool_call_parser ({}) is not set",
                fmt::join(parse::tool_format_names(), ", ")),
            .param = "tools",
            .code = "unsupported_parameter"};
    }
    if (must_call) {
        if (auto error = require_call(choice, tools, defaults.formats.tools, call)) return error;
    }
    chat.tools = std::move(tools);
    call.parser.tool_names = std::move(names);
    return {};
}

MaybeError read_reasoning(const Json& body, const api::CallDefaults& defaults, api::Call& call,
                          api::ChatPrompt& chat) {
    static constexpr std::array<std::string_view, 7> kEfforts = {"none", "minimal", "low", "medium",
                                                                 "high", "xhigh",   "max"};
    bool separate = true;
    for (const auto& [name, into] :
         {std::pair("separate_reasoning", &separate),
          std::pair("stream_reasoning", &call.parser.stream_reasoning)}) {
        const Json& value = body[name];
        if (value.is_null()) continue;
        if (!value.is_bool()) return wrong(name, "true or false", value);
        *into = value.as_bool();
    }
    if (separate) call.parser.reasoning = defaults.formats.reasoning;
    const Json& effort = body["reasoning_effort"];
    if (effort.is_null()) return {};
    if (!effort.is_string() ||
        std::find(kEfforts.begin(), kEfforts.end(), effort.as_string()) == kEfforts.end()) {
        return wrong("reasoning_effort", "none, minimal, low, medium, high, xhigh or max", effort);
    }
    if (!chat.template_variables.find("reasoning_effort")) {
        chat.template_variables.set("reasoning_effort", effort);
    }
    if (effort == Json("none") && !chat.template_variables.find("thinking")) {
        chat.template_variables.set("thinking", false);
    }
    return {};
}

}  // namespace aerie::openai
