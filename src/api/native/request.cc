#include "api/native/request.h"

#include <optional>
#include <string>
#include <utility>

#include "api/openai/fields.h"
#include "api/openai/request.h"

namespace aerie::native {
namespace {

using api::ApiError;
using api::MaybeError;
using openai::wrong;

constexpr int kDefaultTokens = 128;
constexpr int kMaxTopLogprobs = 20;
constexpr int kMaxPromptPosition = 1 << 30;
constexpr size_t kMaxAskedIds = 1024;

// What is called otherwise in a completion's request.
struct Renamed {
    const char* native;
    const char* completion;
};
constexpr Renamed kParams[] = {
    {"max_new_tokens", "max_tokens"}, {"min_new_tokens", "min_tokens"}, {"sampling_seed", "seed"}};
// Of sampling_params; the rest of these is ignored, as in SGLang.
constexpr const char* kSameParams[] = {"temperature",
                                       "top_p",
                                       "top_k",
                                       "min_p",
                                       "frequency_penalty",
                                       "presence_penalty",
                                       "repetition_penalty",
                                       "n",
                                       "stop",
                                       "stop_token_ids",
                                       "stop_regex",
                                       "json_schema",
                                       "regex",
                                       "ebnf",
                                       "structural_tag",
                                       "ignore_eos",
                                       "skip_special_tokens",
                                       "no_stop_trim",
                                       "logit_bias"};
// Beside it.
constexpr const char* kSameFields[] = {"rid",
                                       "stream",
                                       "lora_path",
                                       "session_params",
                                       "priority",
                                       "custom_logit_processor",
                                       "return_hidden_states",
                                       "logits_hash"};

MaybeError read_prompt(const Json& body, Json& completion, std::string& field) {
    const bool has_text = !body["text"].is_null();
    if (has_text == !body["input_ids"].is_null()) {
        return ApiError{.message = has_text
                                       ? "text and input_ids are given: only one may be"
                                       : "text must be a string or a list of strings, or input_ids "
                                         "a list of token ids or of such lists: both are missing",
                        .param = "text"};
    }
    field = has_text ? "text" : "input_ids";
    const Json& value = body[field];
    const Json* first = &value;
    if (value.is_array() && !value.as_array().empty()) first = &value.as_array()[0];
    const bool first_is_text = first->is_string();
    if (has_text != first_is_text) {
        return wrong(field,
                     has_text ? "a string or a list of strings"
                              : "a list of token ids or a list of such lists",
                     value);
    }
    completion.set("prompt", value);
    return {};
}

MaybeError read_sampling_params(const Json& params, Json& completion) {
    if (params.is_null()) return {};
    if (!params.is_object()) return wrong("sampling_params", "an object", params);
    for (const Renamed& renamed : kParams) {
        if (const Json* value = params.find(renamed.native)) {
            completion.set(renamed.completion, *value);
        }
    }
    for (const char* name : kSameParams) {
        if (const Json* value = params.find(name)) completion.set(name, *value);
    }
    return {};
}

bool is_whole(const Json& value, int64_t min, int64_t max) {
    return value.is_int() && value.as_int() >= min && value.as_int() <= max;
}

// Without return_logprob the other fields are checked and not used.
MaybeError read_logprobs(const Json& body, int vocab_size, api::Call& call) {
    const Json& wanted = body["return_logprob"];
    if (!wanted.is_null() && !wanted.is_bool()) {
        return wrong("return_logprob", "true or false", wanted);
    }
    const Json& start = body["logprob_start_len"];
    if (!start.is_null() && !is_whole(start, -1, kMaxPromptPosition)) {
        return wrong("logprob_start_len",
                     fmt::format("a whole number from -1 (no prompt logprobs) to {}", kMaxPromptPosition),
                     start);
    }
    const Json& top = body["top_logprobs_num"];
    if (!top.is_null() && !is_whole(top, 0, kMaxTopLogprobs)) {
        return wrong("top_logprobs_num",
                     fmt::format("a whole number from 0 to {}", kMaxTopLogprobs), top);
    }
    const Json& ids = body["token_ids_logprob"];
    bool valid = ids.is_null() || (ids.is_array() && ids.as_array().size() <= kMaxAskedIds);
    static const Json::Array kNone;
    const Json::Array& listed = valid && ids.is_array() ? ids.as_array() : kNone;
    for (const Json& id : listed) valid = valid && is_whole(id, 0, vocab_size - 1);
    if (!valid) {
        return wrong("token_ids_logprob",
                     fmt::format("a list of at most {} token ids from 0 to {}", kMaxAskedIds,
                                 vocab_size - 1),
                     ids);
    }
    if (wanted != Json(true)) return {};
    if (!start.is_null()) call.sampling.prompt_logprobs_from = static_cast<int>(start.as_int());
    call.sampling.num_top_logprobs = top.is_null() ? 0 : static_cast<int>(top.as_int());
    for (const Json& id : listed) {
        call.sampling.logprob_ids.push_back(static_cast<int32_t>(id.as_int()));
    }
    return {};
}

// An error of the completion in the words of this request.
ApiError translated(ApiError error, const std::string& prompt_field) {
    const auto rename = [&](const std::string& from, const std::string& to) {
        if (!error.param.starts_with(from)) return;
        if (error.message.starts_with(error.param)) error.message.replace(0, from.size(), to);
        error.param.replace(0, from.size(), to);
    };
    rename("prompt", prompt_field);
    for (const Renamed& renamed : kParams) rename(renamed.completion, renamed.native);
    return error;
}

}  // namespace

MaybeError parse_generate(const Json& body, const api::CallDefaults& defaults, api::Call& call) {
    Json completion = Json::object();
    std::string prompt_field;
    if (auto error = read_prompt(body, completion, prompt_field)) return error;
    if (auto error = read_sampling_params(body["sampling_params"], completion)) return error;
    for (const char* name : kSameFields) {
        if (const Json* value = body.find(name)) completion.set(name, *value);
    }
    for (const char* name : {"image_data", "audio_data", "video_data", "input_embeds"}) {
        const Json& value = body[name];
        if (!value.is_null()) return wrong(name, "left out: this model reads text", value);
    }
    const api::CallDefaults own{.vocab_size = defaults.vocab_size};
    if (auto error = openai::parse_completion(completion, own, call)) {
        return translated(*std::move(error), prompt_field);
    }
    const Json& prompt = completion["prompt"];
    call.is_batch = prompt.is_array() && !prompt.as_array()[0].is_number();
    call.default_max_tokens = kDefaultTokens;
    call.return_token_ids = true;
    return read_logprobs(body, defaults.vocab_size, call);
}

}  // namespace aerie::native
