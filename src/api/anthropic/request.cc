#include "api/anthropic/request.h"

#include <utility>

#include "api/anthropic/messages.h"
#include "api/openai/fields.h"
#include "api/openai/request.h"

namespace aerie::anthropic {
namespace {

using api::ApiError;
using api::MaybeError;
using openai::wrong;

MaybeError read_tools(const Json& tools, Json& chat) {
    if (tools.is_null()) return {};
    if (!tools.is_array()) return wrong("tools", "a list of tools", tools);
    Json list = Json::array();
    for (size_t i = 0; i < tools.as_array().size(); ++i) {
        const Json& tool = tools.as_array()[i];
        const std::string field = fmt::format("tools[{}]", i);
        if (!tool.is_object()) return wrong(field, "an object", tool);
        const Json& type = tool["type"];
        if (!type.is_null() && type != Json("custom")) {
            return wrong(field + ".type", "\"custom\": this server has no tools of its own", type);
        }
        if (!tool["name"].is_string()) return wrong(field + ".name", "a string", tool["name"]);
        const Json& schema = tool["input_schema"];
        if (!schema.is_object()) return wrong(field + ".input_schema", "an object", schema);
        Json function = Json::object().set("name", tool["name"]);
        function.set("description", tool["description"]).set("parameters", schema);
        list.push_back(Json::object().set("type", "function").set("function", std::move(function)));
    }
    chat.set("tools", std::move(list));
    return {};
}

MaybeError read_tool_choice(const Json& choice, Json& chat) {
    if (choice.is_null()) return {};
    const Json& type = choice["type"];
    if (type == Json("tool")) {
        const Json& name = choice["name"];
        if (!name.is_string()) return wrong("tool_choice.name", "a string", name);
        chat.set("tool_choice", Json::object()
                                    .set("type", "function")
                                    .set("function", Json::object().set("name", name)));
    } else if (type == Json("any")) {
        chat.set("tool_choice", "required");
    } else if (type == Json("auto") || type == Json("none")) {
        chat.set("tool_choice", type);
    } else {
        return wrong("tool_choice.type", "auto, any, tool or none", type);
    }
    const Json& alone = choice["disable_parallel_tool_use"];
    if (alone.is_null()) return {};
    if (!alone.is_bool()) {
        return wrong("tool_choice.disable_parallel_tool_use", "true or false", alone);
    }
    chat.set("parallel_tool_calls", !alone.as_bool());
    return {};
}

MaybeError read_thinking(const Json& thinking, Json& chat) {
    if (thinking.is_null()) return {};
    const Json& type = thinking["type"];
    if (type != Json("enabled") && type != Json("adaptive") && type != Json("disabled")) {
        return wrong("thinking.type", "enabled, adaptive or disabled", type);
    }
    chat.set("chat_template_kwargs", Json::object().set("thinking", type != Json("disabled")));
    return {};
}

MaybeError read_stop_sequences(const Json& stops, Json& chat) {
    if (stops.is_null()) return {};
    const char* const expected = "a list of strings, none of them empty";
    if (!stops.is_array()) return wrong("stop_sequences", expected, stops);
    for (const Json& stop : stops.as_array()) {
        if (!stop.is_string() || stop.as_string().empty()) {
            return wrong("stop_sequences", expected, stops);
        }
    }
    chat.set("stop", stops);
    return {};
}

// The same request in the words of an OpenAI chat.
MaybeError to_chat(const Json& body, Json& chat) {
    Json messages = Json::array();
    if (auto error = read_system(body["system"], messages)) return error;
    if (auto error = read_messages(body["messages"], messages)) return error;
    const Json& last = messages.as_array().back();
    if (last["role"] == Json("assistant") && last["content"].is_string() &&
        !last.find("tool_calls")) {
        chat.set("continue_final_message", true);
    }
    chat.set("messages", std::move(messages));
    if (auto error = read_tools(body["tools"], chat)) return error;
    if (auto error = read_tool_choice(body["tool_choice"], chat)) return error;
    return read_thinking(body["thinking"], chat);
}

}  // namespace

MaybeError parse_count(const Json& body, const api::CallDefaults& defaults, api::Call& call) {
    Json chat = Json::object();
    if (auto error = to_chat(body, chat)) return error;
    if (const Json* model = body.find("model")) chat.set("model", *model);
    return openai::parse_chat(chat, defaults, call);
}

MaybeError parse_messages(const Json& body, const api::CallDefaults& defaults, api::Call& call) {
    Json chat = Json::object();
    if (auto error = to_chat(body, chat)) return error;
    if (auto error = read_stop_sequences(body["stop_sequences"], chat)) return error;
    for (const char* name : {"model", "max_tokens", "temperature", "top_p", "top_k", "stream"}) {
        if (const Json* value = body.find(name)) chat.set(name, *value);
    }
    if (chat["max_tokens"].is_null()) {
        return wrong("max_tokens", "a whole number of at least 1", chat["max_tokens"]);
    }
    if (auto error = openai::parse_chat(chat, defaults, call)) return error;
    call.default_max_tokens = std::exchange(call.max_tokens, std::nullopt);
    return {};
}

}  // namespace aerie::anthropic
