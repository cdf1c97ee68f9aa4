#include "frontend/prompt_encoder.h"

#include <algorithm>
#include <utility>

namespace aerie::frontend {

using api::ApiError;
using api::MaybeError;

namespace {

constexpr const char* kProbe = R"({"probe": 1})";  // as json.dumps writes it

}  // namespace

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer, RenderChat render_chat,
                             int context_length, const api::CallDefaults& defaults)
    : tokenizer_(tokenizer),
      render_chat_(std::move(render_chat)),
      context_length_(context_length),
      reasoning_(defaults.formats.reasoning),
      max_messages_(defaults.limits.max_messages),
      takes_text_arguments_(shows_arguments(kProbe)),
      takes_object_arguments_(shows_arguments(Json::object().set("probe", 1))) {}

// Whether the template writes them as they are: a text that it quotes once more is no longer that.
bool PromptEncoder::shows_arguments(Json arguments) const {
    Json function = Json::object().set("name", "f").set("arguments", std::move(arguments));
    Json calls = Json::array();
    calls.push_back(Json::object()
                        .set("id", "call_1")
                        .set("type", "function")
                        .set("function", std::move(function)));
    Json messages = Json::array();
    messages.push_back(Json::object().set("role", "user").set("content", "x"));
    messages.push_back(Json::object()
                           .set("role", "assistant")
                           .set("content", Json())
                           .set("tool_calls", std::move(calls)));
    auto rendered = render_chat_(Json::object()
                                           .set("messages", std::move(messages))
                                           .set("tools", Json())
                                           .set("add_generation_prompt", false)
                                           .set("bos_token", tokenizer_.bos_token())
                                           .set("eos_token", tokenizer_.eos_token()));
    return rendered && rendered->find(kProbe) != std::string::npos;
}

// Text where the template can write it: it is what the model has written, to the last blank.
void PromptEncoder::convert_arguments(Json& messages) const {
    if (takes_text_arguments_ == takes_object_arguments_) return;
    for (Json& message : messages.as_array()) {
        Json* calls = message.find("tool_calls");
        if (!calls || !calls->is_array()) continue;
        for (Json& call : calls->as_array()) {
            Json& arguments = *call.find("function")->find("arguments");
            if (takes_text_arguments_ && !arguments.is_string()) {
                arguments = arguments.dump();
            } else if (takes_object_arguments_ && arguments.is_string()) {
                auto object = Json::parse(arguments.as_string());
                if (object && object->is_object()) arguments = *std::move(object);
            }
        }
    }
}

MaybeError PromptEncoder::render(const api::ChatPrompt& chat, std::string& text,
                                 bool& opens_reasoning) const {
    if (const size_t count = chat.messages.as_array().size();
        count > static_cast<size_t>(max_messages_)) {
        return ApiError{.message = fmt::format("messages must be at most {} (http_max_messages), "
                                               "got {}",
                                               max_messages_, count),
                        .param = "messages"};
    }
    Json variables = chat.template_variables;
    Json messages = chat.messages;
    std::string rest;  // the beginning of the answer, after the generation prompt
    if (chat.continue_final_message) {
        rest = messages.as_array().back()["content"].as_string();
        messages.as_array().pop_back();
    }
    convert_arguments(messages);
    variables.set("messages", std::move(messages));
    variables.set("tools", chat.tools);
    variables.set("add_generation_prompt", chat.add_generation_prompt);
    variables.set("bos_token", tokenizer_.bos_token());
    variables.set("eos_token", tokenizer_.eos_token());
    auto rendered = render_chat_(variables);
    if (!rendered) return ApiError{.message = rendered.message(), .param = "messages"};
    opens_reasoning = parse::prompt_opens_reasoning(reasoning_, *rendered, rest);
    text = *std::move(rendered) + rest;
    return {};
}

MaybeError PromptEncoder::encode(const api::Prompt& prompt, std::vector<int32_t>& ids,
                                 bool add_special_tokens, bool* opens_reasoning) const {
    if (const auto* given = std::get_if<std::vector<int32_t>>(&prompt)) {
        ids = *given;
    } else if (const auto* text = std::get_if<std::string>(&prompt)) {
        ids = add_special_tokens ? tokenizer_.encode_with_special_tokens(*text)
                                 : tokenizer_.encode(*text);
    } else {
        std::string rendered;
        bool opens = false;
        if (auto error = render(std::get<api::ChatPrompt>(prompt), rendered, opens)) return error;
        if (opens_reasoning) *opens_reasoning = opens;
        ids = tokenizer_.encode(rendered);
    }
    return {};
}

MaybeError PromptEncoder::fit(int num_tokens, const api::Call& call, int& max_new_tokens) const {
    const int left = context_length_ - num_tokens;
    if (num_tokens == 0) {
        return ApiError{.message = "the prompt must have at least one token, got none",
                        .param = "prompt"};
    }
    if (left < 0) {
        return ApiError{.message = fmt::format(
                            "The input ({} tokens) is longer than the model's context length "
                            "({} tokens).", num_tokens, context_length_),
                        .code = "context_length_exceeded"};
    }
    const int64_t wanted = call.max_tokens ? *call.max_tokens : 1;
    if (wanted > left) {
        return ApiError{.message = fmt::format(
                            "Requested token count exceeds the model's maximum context length of "
                            "{} tokens. You requested a total of {} tokens: {} from the input and "
                            "{} for the completion.",
                            context_length_, num_tokens + wanted, num_tokens, wanted),
                        .param = call.max_tokens ? "max_tokens" : "",
                        .code = "context_length_exceeded"};
    }
    max_new_tokens = call.max_tokens           ? *call.max_tokens
                     : call.default_max_tokens ? std::min(*call.default_max_tokens, left)
                                               : left;
    if (call.sampling.min_new_tokens > max_new_tokens) {
        return ApiError{.message = fmt::format("min_tokens must be at most {}, the tokens that may "
                                               "be generated, got {}",
                                               max_new_tokens, call.sampling.min_new_tokens),
                        .param = "min_tokens"};
    }
    return {};
}

std::string PromptEncoder::text_of(const api::Prompt& prompt,
                                   const std::vector<int32_t>& ids) const {
    if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
    return tokenizer_.decode(ids, /*skip_special_tokens=*/true);
}

}  // namespace aerie::frontend
