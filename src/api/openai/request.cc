#include "api/openai/request.h"

#include <utility>

#include "api/openai/fields.h"
#include "api/openai/tools.h"

namespace aerie::openai {
namespace {

using api::ApiError;
using api::Call;
using api::MaybeError;

constexpr int kDefaultCompletionTokens = 16;
constexpr size_t kMaxChoices = 1024;  // prompts × n of one call

void set_defaults(const api::CallDefaults& defaults, Call& call) {
    call.sampling.temperature = defaults.temperature;
    call.sampling.top_p = defaults.top_p;
    call.sampling.top_k = defaults.top_k;
    call.sampling.min_p = defaults.min_p;
    call.sampling.repetition_penalty = defaults.repetition_penalty;
}

MaybeError read_flag(const Json& body, const char* name, bool& into) {
    const Json& value = body[name];
    if (value.is_null()) return {};
    if (!value.is_bool()) return wrong(name, "true or false", value);
    into = value.as_bool();
    return {};
}

MaybeError read_template_variables(const Json& body, api::ChatPrompt& chat) {
    const Json& variables = body["chat_template_kwargs"];
    if (!variables.is_null() && !variables.is_object()) {
        return wrong("chat_template_kwargs", "an object", variables);
    }
    if (variables.is_null()) return {};
    for (const char* name : {"messages", "tools", "bos_token", "eos_token"}) {
        if (variables.find(name)) {
            return ApiError{.message = fmt::format("chat_template_kwargs.{} is set by the server: "
                                                   "leave it out", name),
                            .param = fmt::format("chat_template_kwargs.{}", name)};
        }
    }
    chat.template_variables = variables;
    if (auto error = read_flag(variables, "add_generation_prompt", chat.add_generation_prompt)) {
        error->param = "chat_template_kwargs." + error->param;
        return error;
    }
    return {};
}

MaybeError read_chat(const Json& body, api::ChatPrompt& chat) {
    if (auto error = read_messages(body["messages"], chat.messages)) return error;
    if (auto error = read_template_variables(body, chat)) return error;
    if (auto error = read_flag(body, "add_generation_prompt", chat.add_generation_prompt)) {
        return error;
    }
    if (auto error = read_flag(body, "continue_final_message", chat.continue_final_message)) {
        return error;
    }
    if (!chat.continue_final_message) return {};
    const Json& last = chat.messages.as_array().back();
    if (last["role"] != Json("assistant") || !last["content"].is_string()) {
        return ApiError{.message = "continue_final_message needs a last message of the role "
                                   "\"assistant\" with text, got the role " + last["role"].dump(),
                        .param = "continue_final_message"};
    }
    return {};
}

bool is_token_id(const Json& value, int vocab_size) {
    return value.is_int() && value.as_int() >= 0 && value.as_int() < vocab_size;
}

MaybeError read_token_ids(std::string field, const Json& ids, int vocab_size,
                          std::vector<api::Prompt>& into) {
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < ids.as_array().size(); ++i) {
        const Json& id = ids.as_array()[i];
        if (!is_token_id(id, vocab_size)) {
            return wrong(fmt::format("{}[{}]", field, i),
                         fmt::format("a token id from 0 to {}", vocab_size - 1), id);
        }
        tokens.push_back(static_cast<int32_t>(id.as_int()));
    }
    if (tokens.empty()) return wrong(std::move(field), "at least one token id", ids);
    into.emplace_back(std::move(tokens));
    return {};
}

MaybeError read_prompts(const Json& prompt, int vocab_size, std::vector<api::Prompt>& into) {
    const char* const expected =
        "a string, a list of strings, a list of token ids or a list of such lists";
    if (prompt.is_string()) {
        into.emplace_back(prompt.as_string());
        return {};
    }
    if (!prompt.is_array() || prompt.as_array().empty()) return wrong("prompt", expected, prompt);
    const Json::Array& items = prompt.as_array();
    if (items[0].is_number()) return read_token_ids("prompt", prompt, vocab_size, into);
    for (size_t i = 0; i < items.size(); ++i) {
        const std::string field = fmt::format("prompt[{}]", i);
        if (items[i].is_string() && items[0].is_string()) {
            into.emplace_back(items[i].as_string());
        } else if (items[i].is_array() && items[0].is_array()) {
            if (auto error = read_token_ids(field, items[i], vocab_size, into)) return error;
        } else {
            return wrong(field, items[0].is_string()  ? "a string, as prompt[0] is"
                                : items[0].is_array() ? "a list of token ids, as prompt[0] is"
                                                      : "a string, a token id or a list of them",
                         items[i]);
        }
    }
    return {};
}

}  // namespace

MaybeError parse_chat(const Json& body, const api::CallDefaults& defaults, Call& call) {
    set_defaults(defaults, call);
    api::ChatPrompt chat;
    if (auto error = read_chat(body, chat)) return error;
    if (auto error = read_fields(body, kChat, defaults, call)) return error;
    if (auto error = read_tools(body, defaults, call, chat)) return error;
    if (auto error = read_reasoning(body, defaults, call, chat)) return error;
    call.prompts.emplace_back(std::move(chat));
    return {};
}

MaybeError parse_completion(const Json& body, const api::CallDefaults& defaults, Call& call) {
    set_defaults(defaults, call);
    call.default_max_tokens = kDefaultCompletionTokens;
    if (auto error = read_prompts(body["prompt"], defaults.vocab_size, call.prompts)) return error;
    if (auto error = read_fields(body, kCompletion, defaults, call)) return error;
    if (call.prompts.size() * static_cast<size_t>(call.n) > kMaxChoices) {
        return ApiError{.message = fmt::format("prompts times n must be at most {}, got {} times {}",
                                               kMaxChoices, call.prompts.size(), call.n),
                        .param = "prompt"};
    }
    return {};
}

}  // namespace aerie::openai
