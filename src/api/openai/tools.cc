#include "api/openai/tools.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "api/openai/fields.h"

namespace aerie::openai {
namespace {

using api::ApiError;
using api::MaybeError;

constexpr size_t kMaxToolName = 256;  // bytes

ApiError wrong(std::string field, std::string_view expected, const Json& value) {
    return ApiError{.message = fmt::format("{} must be {}, {}", field, expected, got(value)),
                    .param = std::move(field)};
}

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

enum class Choice { kAuto, kNone };

MaybeError read_tool_choice(const Json& value, Choice& choice) {
    if (value.is_null() || value == Json("auto")) return {};
    if (value == Json("none")) {
        choice = Choice::kNone;
        return {};
    }
    if (value != Json("required") && !(value.is_object() && value["type"] == Json("function"))) {
        return wrong("tool_choice",
                     "\"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": "
                     "{\"name\": …}}",
                     value);
    }
    return ApiError{
        .message = fmt::format(
            "tool_choice is not supported yet, {}: making the model call a tool needs a "
            "grammar; \"auto\" and \"none\" are supported",
            got(value)),
        .param = "tool_choice",
        .code = "unsupported_parameter"};
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
    Choice choice = Choice::kAuto;
    if (auto error = read_tool_choice(body["tool_choice"], choice)) return error;
    const Json& parallel = body["parallel_tool_calls"];
    if (!parallel.is_null() && !parallel.is_bool()) {
        return wrong("parallel_tool_calls", "true or false", parallel);
    }
    call.parser.one_call = parallel == Json(false);
    if (body["tools"].is_null()) return {};
    Json tools;
    std::vector<std::string> names;
    if (auto error = read_tool_list(body["tools"], defaults.limits, tools, names)) return error;
    if (names.empty() || choice == Choice::kNone) return {};
    if (defaults.formats.tools == parse::ToolFormat::kNone) {
        return ApiError{
            .message = fmt::format(
                "tools cannot be called: the model's chat template does not show how it "
                "writes calls, and the setting tool_call_parser ({}) is not set",
                fmt::join(parse::tool_format_names(), ", ")),
            .param = "tools",
            .code = "unsupported_parameter"};
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
