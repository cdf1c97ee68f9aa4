// PromptEncoder: texts and chats → token ids that fit the context.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "api/call.h"
#include "api/error.h"
#include "base/json.h"
#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace aerie::frontend {

// The chat template. Any thread.
using RenderChat = std::function<Result<std::string>(const Json& variables)>;

// Any thread; takes as long as the prompt is long: not for an I/O thread.
class PromptEncoder {
  public:
    // The tokenizer must outlive this. context_length: tokens, prompt and output.
    PromptEncoder(const Tokenizer& tokenizer, RenderChat render_chat, int context_length,
                  const api::CallDefaults& defaults);

    // add_special_tokens: of a text, the BOS that its model expects. A chat template writes its own.
    // opens_reasoning: whether the answer begins inside the reasoning.
    api::MaybeError encode(const api::Prompt& prompt, std::vector<int32_t>& ids,
                           bool add_special_tokens = true, bool* opens_reasoning = nullptr) const;

    // How many tokens the call may generate after a prompt of `num_tokens`.
    api::MaybeError fit(int num_tokens, const api::Call& call, int& max_new_tokens) const;

    // The prompt as text, for a reply that repeats it.
    std::string text_of(const api::Prompt& prompt, const std::vector<int32_t>& ids) const;

  private:
    api::MaybeError render(const api::ChatPrompt& chat, std::string& text,
                           bool& opens_reasoning) const;
    bool shows_arguments(Json arguments) const;
    void convert_arguments(Json& messages) const;

    const Tokenizer& tokenizer_;
    const RenderChat render_chat_;
    const int context_length_;
    const parse::ReasoningFormat reasoning_;  // the model's
    const int max_messages_;
    // How the template can write the arguments of past calls: some want a text, some an object.
    const bool takes_text_arguments_, takes_object_arguments_;
};

}  // namespace aerie::frontend
