#include "api/anthropic/messages.h"

#include <string>
#include <utility>

#include "api/openai/fields.h"

namespace aerie::anthropic {
namespace {

using api::ApiError;
using api::MaybeError;
using openai::wrong;

void add_line(std::string& text, const std::string& line) {
    if (!text.empty()) text += '\n';
    text += line;
}

// A string, or blocks of text joined by line breaks.
MaybeError read_text(const std::string& field, const Json& content, std::string& into) {
    if (content.is_null()) return {};
    if (content.is_string()) {
        into = content.as_string();
        return {};
    }
    if (!content.is_array()) return wrong(field, "a string or a list of blocks", content);
    for (size_t i = 0; i < content.as_array().size(); ++i) {
        const Json& block = content.as_array()[i];
        const std::string name = fmt::format("{}[{}]", field, i);
        if (block["type"] != Json("text")) {
            return wrong(name + ".type", "\"text\", all that this model reads here", block["type"]);
        }
        if (!block["text"].is_string()) return wrong(name + ".text", "a string", block["text"]);
        add_line(into, block["text"].as_string());
    }
    return {};
}

// A message of the client while its blocks are read.
struct Message {
    std::string role, text, reasoning;
    bool has_text = false;
    Json calls = Json::array();

    // What has been read becomes a message of its own.
    void flush(Json& into) {
        if (!has_text && reasoning.empty() && calls.as_array().empty()) return;
        Json message = Json::object().set("role", role);
        message.set("content", has_text ? Json(std::exchange(text, {})) : Json());
        if (!reasoning.empty()) message.set("reasoning_content", std::exchange(reasoning, {}));
        if (!calls.as_array().empty()) {
            message.set("tool_calls", std::exchange(calls, Json::array()));
        }
        has_text = false;
        into.push_back(std::move(message));
    }
};

MaybeError read_tool_use(const std::string& field, const Json& block, Message& message) {
    for (const char* name : {"id", "name"}) {
        if (!block[name].is_string()) return wrong(field + "." + name, "a string", block[name]);
    }
    if (!block["input"].is_object()) return wrong(field + ".input", "an object", block["input"]);
    Json function = Json::object().set("name", block["name"]).set("arguments", block["input"]);
    message.calls.push_back(Json::object()
                                .set("id", block["id"])
                                .set("type", "function")
                                .set("function", std::move(function)));
    return {};
}

MaybeError read_tool_result(const std::string& field, const Json& block, Json& into) {
    if (!block["tool_use_id"].is_string()) {
        return wrong(field + ".tool_use_id", "a string", block["tool_use_id"]);
    }
    const Json& failed = block["is_error"];
    if (!failed.is_null() && !failed.is_bool()) {
        return wrong(field + ".is_error", "true or false", failed);
    }
    std::string text;
    if (auto error = read_text(field + ".content", block["content"], text)) return error;
    if (failed == Json(true)) text.insert(0, "Error: ");
    into.push_back(Json::object()
                       .set("role", "tool")
                       .set("tool_call_id", block["tool_use_id"])
                       .set("content", std::move(text)));
    return {};
}

MaybeError read_block(const std::string& field, const Json& block, Message& message, Json& into) {
    if (!block.is_object()) return wrong(field, "an object", block);
    const Json& type = block["type"];
    const bool is_user = message.role == "user";
    if (type == Json("text")) {
        if (!block["text"].is_string()) return wrong(field + ".text", "a string", block["text"]);
        add_line(message.text, block["text"].as_string());
        message.has_text = true;
        return {};
    }
    if (is_user && type == Json("tool_result")) {
        message.flush(into);
        return read_tool_result(field, block, into);
    }
    if (!is_user && type == Json("tool_use")) return read_tool_use(field, block, message);
    if (!is_user && type == Json("thinking")) {
        if (!block["thinking"].is_string()) {
            return wrong(field + ".thinking", "a string", block["thinking"]);
        }
        add_line(message.reasoning, block["thinking"].as_string());
        return {};
    }
    if (!is_user && type == Json("redacted_thinking")) return {};
    return wrong(field + ".type",
                 is_user ? "text or tool_result, what this model reads of the role user"
                         : "text, tool_use, thinking or redacted_thinking",
                 type);
}

}  // namespace

MaybeError read_system(const Json& system, Json& into) {
    std::string text;
    if (auto error = read_text("system", system, text)) return error;
    if (!text.empty()) {
        into.push_back(Json::object().set("role", "system").set("content", std::move(text)));
    }
    return {};
}

MaybeError read_messages(const Json& messages, Json& into) {
    if (!messages.is_array() || messages.as_array().empty()) {
        return wrong("messages", "a list of at least one message", messages);
    }
    for (size_t i = 0; i < messages.as_array().size(); ++i) {
        const Json& given = messages.as_array()[i];
        const std::string field = fmt::format("messages[{}]", i);
        if (!given.is_object()) return wrong(field, "an object", given);
        if (given["role"] != Json("user") && given["role"] != Json("assistant")) {
            return wrong(field + ".role", "user or assistant", given["role"]);
        }
        const Json& content = given["content"];
        Message message{.role = given["role"].as_string(), .text = {}, .reasoning = {}};
        const size_t num_before = into.as_array().size();
        if (content.is_string()) {
            message.text = content.as_string();
            message.has_text = true;
        } else if (content.is_array()) {
            for (size_t b = 0; b < content.as_array().size(); ++b) {
                const std::string name = fmt::format("{}.content[{}]", field, b);
                if (auto error = read_block(name, content.as_array()[b], message, into)) {
                    return error;
                }
            }
        } else {
            return wrong(field + ".content", "a string or a list of blocks", content);
        }
        message.has_text |= into.as_array().size() == num_before;  // an empty one is a message too
        message.flush(into);
    }
    return {};
}

}  // namespace aerie::anthropic
