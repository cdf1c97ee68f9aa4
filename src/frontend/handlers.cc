#include "frontend/handlers.h"

#include <sys/random.h>

#include <ctime>
#include <utility>

#include "api/openai/reply.h"
#include "api/openai/request.h"

namespace aerie::frontend {

using api::ApiError;
using api::Call;
using api::MaybeError;

namespace {

DispatcherOptions dispatcher_options(const FrontendOptions& options) {
    DispatcherOptions result;
    result.random_seed = options.random_seed;
    result.replica_choice = options.replica_choice;
    if (options.max_running_requests && options.max_queued_requests) {
        result.max_in_flight = *options.max_running_requests + *options.max_queued_requests;
        result.max_in_flight_reason =
            fmt::format("max_running_requests {} + max_queued_requests {}",
                        *options.max_running_requests, *options.max_queued_requests);
    }
    return result;
}

std::string random_hex() {
    uint64_t bits[2];
    CHECK_EQ(getrandom(bits, sizeof bits, 0), static_cast<ssize_t>(sizeof bits));
    return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

}  // namespace

Handlers::Handlers(const FrontendOptions& options, FrontendParts parts)
    : options_(options),
      parts_(std::move(parts)),
      encoder_(parts_.tokenizer, parts_.render_chat, options.context_length),
      metrics_(parts_.registry, options.served_model_name),
      started_(std::time(nullptr)),
      dispatcher_(Dispatcher::make(parts_.engine, dispatcher_options(options))) {}

void Handlers::send_error(HttpCall& call, const ApiError& error) const {
    call.answer.send(error.status, openai::error_body(error));
}

void Handlers::send_json(HttpCall& call, const Json& json) const {
    call.answer.send(200, {"application/json", json.dump()});
}

bool Handlers::read_body(HttpCall& call, Json& body) const {
    auto parsed = Json::parse(call.request.body);
    if (!parsed) {
        send_error(call, {.message = "the body is not JSON: " + parsed.message()});
        return false;
    }
    body = *std::move(parsed);
    if (!body.is_object()) {
        send_error(call, {.message = fmt::format("the body must be a JSON object, got {}",
                                                 body.type_name())});
        return false;
    }
    call.request.body.clear();
    return true;
}

void Handlers::chat(HttpCall& call) { generate(call, OpenAiKind::kChat); }
void Handlers::completion(HttpCall& call) { generate(call, OpenAiKind::kCompletion); }

void Handlers::generate(HttpCall& http, OpenAiKind kind) {
    if (stopping_) return send_error(http, {.status = 503, .message = "the server is stopping"});
    Json body;
    if (!read_body(http, body)) return;
    Call call;
    auto error = kind == OpenAiKind::kChat
                     ? openai::parse_chat(body, options_.defaults, call)
                     : openai::parse_completion(body, options_.defaults, call);
    if (error) return send_error(http, *error);
    if (call.model.empty()) call.model = options_.served_model_name;
    std::vector<EncodedPrompt> prompts;
    if (auto bad = encode_all(call, prompts)) return send_error(http, *bad);
    auto format = make_format(kind, call, prompts);
    start(std::move(call), std::move(prompts), std::move(format), http.answer);
}

MaybeError Handlers::encode_all(const Call& call, std::vector<EncodedPrompt>& prompts) const {
    for (const api::Prompt& prompt : call.prompts) {
        EncodedPrompt encoded;
        if (auto error = encoder_.encode(prompt, encoded.ids)) return error;
        const int num_tokens = static_cast<int>(encoded.ids.size());
        if (auto error = encoder_.fit(num_tokens, call, encoded.max_new_tokens)) return error;
        prompts.push_back(std::move(encoded));
    }
    return {};
}

std::unique_ptr<api::ReplyFormat> Handlers::make_format(
    OpenAiKind kind, const Call& call, const std::vector<EncodedPrompt>& prompts) const {
    const bool is_chat = kind == OpenAiKind::kChat;
    openai::ReplyHeader header{.id = (is_chat ? "chatcmpl-" : "cmpl-") + random_hex(),
                               .model = call.model,
                               .created = std::time(nullptr),
                               .n = call.n,
                               .include_usage = call.include_usage,
                               .continuous_usage_stats = call.continuous_usage_stats,
                               .return_token_ids = call.return_token_ids,
                               .logits_hash = call.logits_hash};
    for (size_t i = 0; i < prompts.size(); ++i) {
        if (call.return_token_ids) header.prompt_token_ids.push_back(prompts[i].ids);
        if (call.echo) header.echo.push_back(encoder_.text_of(call.prompts[i], prompts[i].ids));
    }
    return is_chat ? openai::chat_reply(std::move(header))
                   : openai::completion_reply(std::move(header));
}

void Handlers::start(Call call, std::vector<EncodedPrompt> prompts,
                     std::unique_ptr<api::ReplyFormat> format, const Answer& answer,
                     std::shared_ptr<Generation>* started) {
    std::vector<int> num_prompt_tokens;
    for (const EncodedPrompt& prompt : prompts) {
        num_prompt_tokens.push_back(static_cast<int>(prompt.ids.size()));
    }
    call.prompts.clear();  // long, and no longer needed
    // Shared by its requests, which end one by one, and by whoever aborts it.
    auto generation = std::make_shared<Generation>(
        std::move(call), std::move(num_prompt_tokens), parts_.tokenizer, std::move(format), answer,
        metrics_, GenerationOptions{.stream_interval = options_.stream_interval});
    if (started) *started = generation;
    dispatcher_->run(generation, std::move(prompts), answer);
}

}  // namespace aerie::frontend
