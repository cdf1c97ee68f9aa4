#include "frontend/prompt_encoder.h"

#include <algorithm>
#include <utility>

namespace aerie::frontend {

using api::ApiError;
using api::MaybeError;

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer, RenderChat render_chat,
                             int context_length)
    : tokenizer_(tokenizer),
      render_chat_(std::move(render_chat)),
      context_length_(context_length) {}

MaybeError PromptEncoder::render(const api::ChatPrompt& chat, std::string& text) const {
    Json variables = chat.template_variables;
    Json messages = chat.messages;
    std::string rest;  // the beginning of the answer, after the generation prompt
    if (chat.continue_final_message) {
        rest = messages.as_array().back()["content"].as_string();
        messages.as_array().pop_back();
    }
    variables.set("messages", std::move(messages));
    variables.set("tools", Json());
    variables.set("add_generation_prompt", chat.add_generation_prompt);
    variables.set("bos_token", tokenizer_.bos_token());
    variables.set("eos_token", tokenizer_.eos_token());
    auto rendered = render_chat_(variables);
    if (!rendered) return ApiError{.message = rendered.message(), .param = "messages"};
    text = *std::move(rendered) + rest;
    return {};
}

MaybeError PromptEncoder::encode(const api::Prompt& prompt, std::vector<int32_t>& ids,
                                 bool add_special_tokens) const {
    if (const auto* given = std::get_if<std::vector<int32_t>>(&prompt)) {
        ids = *given;
    } else if (const auto* text = std::get_if<std::string>(&prompt)) {
        ids = add_special_tokens ? tokenizer_.encode_with_special_tokens(*text)
                                 : tokenizer_.encode(*text);
    } else {
        std::string rendered;
        if (auto error = render(std::get<api::ChatPrompt>(prompt), rendered)) return error;
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
