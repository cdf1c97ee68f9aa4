#include "api/responses/request.h"

#include <string>
#include <utility>

#include "api/openai/fields.h"
#include "api/openai/request.h"

namespace aerie::responses {
namespace {

using api::ApiError;
using api::MaybeError;
using openai::wrong;

MaybeError read_text(const std::string& field, const Json& content, std::string& into) {
    if (content.is_string()) {
        into = content.as_string();
        return {};
    }
    if (!content.is_array()) return wrong(field, "a string or a list of texts", content);
    for (size_t i = 0; i < content.as_array().size(); ++i) {
        const Json& part = content.as_array()[i];
        const std::string name = fmt::format("{}[{}]", field, i);
        const Json& type = part["type"];
        if (type != Json("input_text") && type != Json("output_text") && type != Json("text")) {
            return wrong(name + ".type", "input_text or output_text, all that this model reads",
                         type);
        }
        if (!part["text"].is_string()) return wrong(name + ".text", "a string", part["text"]);
        if (i > 0) into += '\n';
        into += part["text"].as_string();
    }
    return {};
}

MaybeError read_call(const std::string& field, const Json& item, Json& messages) {
    for (const char* name : {"call_id", "name", "arguments"}) {
        if (!item[name].is_string()) return wrong(field + "." + name, "a string", item[name]);
    }
    Json function = Json::object().set("name", item["name"]).set("arguments", item["arguments"]);
    Json call = Json::object()
                    .set("id", item["call_id"])
                    .set("type", "function")
                    .set("function", std::move(function));
    Json::Array& all = messages.as_array();
    if (all.empty() || all.back()["role"] != Json("assistant")) {  // else it goes on with that
        messages.push_back(Json::object().set("role", "assistant").set("content", Json()));
    }
    if (!all.back().find("tool_calls")) all.back().set("tool_calls", Json::array());
    all.back().find("tool_calls")->push_back(std::move(call));
    return {};
}

MaybeError read_item(const std::string& field, const Json& item, Json& messages) {
    if (!item.is_object()) return wrong(field, "an object", item);
    const Json& type = item["type"];
    std::string text;
    if (type.is_null() || type == Json("message")) {
        if (!item["role"].is_string()) return wrong(field + ".role", "a string", item["role"]);
        if (auto error = read_text(field + ".content", item["content"], text)) return error;
        messages.push_back(Json::object().set("role", item["role"]).set("content", text));
        return {};
    }
    if (type == Json("function_call")) return read_call(field, item, messages);
    if (type == Json("function_call_output")) {
        if (!item["call_id"].is_string()) {
            return wrong(field + ".call_id", "a string", item["call_id"]);
        }
        if (auto error = read_text(field + ".output", item["output"], text)) return error;
        messages.push_back(Json::object()
                               .set("role", "tool")
                               .set("tool_call_id", item["call_id"])
                               .set("content", text));
        return {};
    }
    if (type == Json("reasoning")) return {};
    return wrong(field + ".type", "message, function_call, function_call_output or reasoning",
                 type);
}

MaybeError read_input(const Json& input, Json& messages) {
    if (input.is_string()) {
        messages.push_back(Json::object().set("role", "user").set("content", input));
        return {};
    }
    if (!input.is_array() || input.as_array().empty()) {
        return wrong("input", "a string or a list of at least one item", input);
    }
    for (size_t i = 0; i < input.as_array().size(); ++i) {
        if (auto error = read_item(fmt::format("input[{}]", i), input.as_array()[i], messages)) {
            return error;
        }
    }
    return {};
}

MaybeError read_tools(const Json& body, Json& chat) {
    const Json& tools = body["tools"];
    if (tools.is_null()) return {};
    if (!tools.is_array()) return wrong("tools", "a list of tools", tools);
    Json list = Json::array();
    for (size_t i = 0; i < tools.as_array().size(); ++i) {
        const Json& tool = tools.as_array()[i];
        if (tool["type"] != Json("function")) {
            return wrong(fmt::format("tools[{}].type", i),
                         "\"function\": this server has no tools of its own", tool["type"]);
        }
        Json function = Json::object();
        for (const char* name : {"name", "description", "parameters"}) {
            if (const Json* value = tool.find(name)) function.set(name, *value);
        }
        list.push_back(Json::object().set("type", "function").set("function", std::move(function)));
    }
    chat.set("tools", std::move(list));
    return {};
}

MaybeError read_conversation(const Json& body, Conversations& conversations, Json& messages) {
    const Json& previous = body["previous_response_id"];
    if (previous.is_null()) return {};
    if (!previous.is_string()) return wrong("previous_response_id", "a string", previous);
    auto found = conversations.find(previous.as_string());
    if (!found) {
        return ApiError{.status = 404,
                        .message = fmt::format("previous_response_id: there is no response {} here "
                                               "(any more)",
                                               previous.as_string().substr(0, 64)),
                        .param = "previous_response_id",
                        .code = "previous_response_not_found"};
    }
    messages = *std::move(found);
    return {};
}

// What is named otherwise in a chat.
constexpr std::pair<const char*, const char*> kRenamed[] = {{"max_output_tokens", "max_tokens"}};
// Of errors, the longest first.
constexpr std::pair<const char*, const char*> kRenamedInErrors[] = {
    {"max_output_tokens", "max_tokens"},
    {"text.format", "response_format.json_schema"},
    {"text.format", "response_format"}};
constexpr const char* kSame[] = {"model", "temperature",         "top_p",      "stream",
                                 "user",  "parallel_tool_calls"};

// A format's members stand beside its type here, under its type in a chat.
void read_format(const Json& format, Json& chat) {
    if (format.is_null()) return;
    Json response_format = format;
    if (format["type"] == Json("json_schema")) {
        response_format = Json::object().set("type", "json_schema").set("json_schema", format);
    }
    chat.set("response_format", std::move(response_format));
}

// {"type": "function", "name"}
void read_tool_choice(const Json& choice, Json& chat) {
    if (choice["type"] == Json("function") && choice["name"].is_string()) {
        Json function = Json::object().set("name", choice["name"]);
        chat.set("tool_choice", Json::object()
                                    .set("type", "function")
                                    .set("function", std::move(function)));
    } else {
        chat.set("tool_choice", choice);
    }
}

MaybeError read_settings(const Json& body, Json& chat) {
    for (const char* name : {"reasoning", "text", "metadata"}) {
        const Json& value = body[name];
        if (!value.is_null() && !value.is_object()) return wrong(name, "an object", value);
    }
    read_tool_choice(body["tool_choice"], chat);
    for (const char* name : kSame) {
        if (const Json* value = body.find(name)) chat.set(name, *value);
    }
    for (const auto& [name, other] : kRenamed) {
        if (const Json* value = body.find(name)) chat.set(other, *value);
    }
    if (const Json& effort = body["reasoning"]["effort"]; !effort.is_null()) {
        chat.set("reasoning_effort", effort);
    }
    read_format(body["text"]["format"], chat);
    const Json& background = body["background"];
    if (!background.is_null() && !background.is_bool()) {
        return wrong("background", "false", background);
    }
    if (background == Json(true)) {
        return ApiError{.message = "background is not supported: leave it out",
                        .param = "background",
                        .code = "unsupported_parameter"};
    }
    return {};
}

// What the reply repeats of the request; nothing else of it lives as long as the stream.
constexpr const char* kRepeated[] = {"instructions", "max_output_tokens", "parallel_tool_calls",
                                     "previous_response_id", "reasoning", "tool_choice", "tools",
                                     "metadata"};

}  // namespace

MaybeError parse_responses(const Json& body, const api::CallDefaults& defaults,
                           Conversations& conversations, api::Call& call, Given& given) {
    Json chat = Json::object(), messages = Json::array();
    if (auto error = read_conversation(body, conversations, messages)) return error;
    if (auto error = read_input(body["input"], messages)) return error;
    if (const Json& store = body["store"]; !store.is_null()) {
        if (!store.is_bool()) return wrong("store", "true or false", store);
        given.store = store.as_bool();
    }
    const Json& instructions = body["instructions"];
    if (!instructions.is_null() && !instructions.is_string()) {
        return wrong("instructions", "a string", instructions);
    }
    Json all = Json::array();
    if (instructions.is_string()) {
        all.push_back(Json::object().set("role", "system").set("content", instructions));
    }
    for (const Json& message : messages.as_array()) all.push_back(message);
    chat.set("messages", std::move(all));
    if (auto error = read_tools(body, chat)) return error;
    if (auto error = read_settings(body, chat)) return error;
    for (const char* name : kRepeated) {
        if (!body[name].is_null()) given.repeated.set(name, body[name]);
    }
    if (given.store) given.messages = std::move(messages);
    auto error = openai::parse_chat(chat, defaults, call);
    if (call.grammar_field == "response_format") call.grammar_field = "text.format";
    for (const auto& [name, other] : kRenamedInErrors) {
        if (!error || !error->param.starts_with(other)) continue;
        const size_t size = std::string_view(other).size();
        if (error->message.starts_with(error->param)) error->message.replace(0, size, name);
        error->param.replace(0, size, name);
        break;
    }
    return error;
}

}  // namespace aerie::responses
