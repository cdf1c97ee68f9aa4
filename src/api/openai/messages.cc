#include <algorithm>
#include <array>
#include <string_view>

#include "api/openai/fields.h"
#include "api/openai/request.h"

namespace aerie::openai {
namespace {

using api::ApiError;
using api::MaybeError;

// A list of text parts becomes one text, joined as SGLang joins it.
MaybeError read_content(const std::string& field, const Json& content, Json& into) {
    if (content.is_string() || content.is_null()) {
        into = content;
        return {};
    }
    if (!content.is_array()) return wrong(field, "a string, a list of parts or null", content);
    std::string text;
    for (size_t i = 0; i < content.as_array().size(); ++i) {
        const Json& part = content.as_array()[i];
        const std::string name = fmt::format("{}[{}]", field, i);
        if (!part.is_object()) return wrong(name, "an object", part);
        if (part["type"] != Json("text")) {
            return wrong(name + ".type", "\"text\", the only part that this model reads",
                         part["type"]);
        }
        if (!part["text"].is_string()) return wrong(name + ".text", "a string", part["text"]);
        if (i > 0) text += ' ';
        text += part["text"].as_string();
    }
    into = std::move(text);
    return {};
}

MaybeError read_tool_calls(const std::string& field, Json& calls) {
    if (!calls.is_array()) return wrong(field, "a list of calls", calls);
    for (size_t i = 0; i < calls.as_array().size(); ++i) {
        Json& call = calls.as_array()[i];
        const std::string name = fmt::format("{}[{}]", field, i);
        if (!call.is_object()) return wrong(name, "an object", call);
        const Json& function = call["function"];
        if (!function.is_object()) return wrong(name + ".function", "an object", function);
        if (!function["name"].is_string()) {
            return wrong(name + ".function.name", "a string", function["name"]);
        }
        const Json& arguments = function["arguments"];
        if (!arguments.is_string() && !arguments.is_object()) {
            return wrong(name + ".function.arguments", "a string or an object", arguments);
        }
        if (call["type"].is_null()) call.set("type", "function");  // V3's template writes it
    }
    return {};
}

MaybeError read_message(const std::string& field, const Json& message, Json& into) {
    static constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user",
                                                               "assistant", "tool"};
    if (!message.is_object()) return wrong(field, "an object", message);
    const Json& role = message["role"];
    if (!role.is_string() || std::find(kRoles.begin(), kRoles.end(), role.as_string()) ==
                                 kRoles.end()) {
        return wrong(field + ".role", "system, developer, user, assistant or tool", role);
    }
    Json content;
    if (auto error = read_content(field + ".content", message["content"], content)) return error;

    into = message;
    if (role == Json("developer")) into.set("role", "system");
    const Json& calls = message["tool_calls"];
    const bool has_calls = !calls.is_null() && calls != Json::array();
    if (has_calls) {
        Json read = calls;
        if (auto error = read_tool_calls(field + ".tool_calls", read)) return error;
        into.set("tool_calls", std::move(read));
    }
    // Templates ask "tool_calls is defined", which a null or an empty list would be.
    std::erase_if(into.as_object(), [&](const auto& member) {
        return member.second.is_null() || (member.first == "tool_calls" && !has_calls);
    });
    if (content.is_null() && !has_calls) content = "";
    into.set("content", std::move(content));
    return {};
}

}  // namespace

MaybeError read_messages(const Json& messages, Json& into) {
    if (!messages.is_array() || messages.as_array().empty()) {
        return wrong("messages", "a list of at least one message", messages);
    }
    into = Json::array();
    for (size_t i = 0; i < messages.as_array().size(); ++i) {
        Json message;
        if (auto error = read_message(fmt::format("messages[{}]", i), messages.as_array()[i],
                                      message)) {
            return error;
        }
        into.push_back(std::move(message));
    }
    return {};
}

}  // namespace aerie::openai
