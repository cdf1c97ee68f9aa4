#include "frontend/handlers.h"

#include <ctime>
#include <utility>

#include "api/anthropic/reply.h"
#include "api/anthropic/request.h"
#include "api/ids.h"
#include "api/native/reply.h"
#include "api/native/request.h"
#include "api/openai/reply.h"
#include "api/openai/request.h"
#include "api/responses/reply.h"
#include "api/responses/request.h"
#include "frontend/routes.h"

namespace aerie::frontend {
namespace {
// They are told at once, and kept until they are: some 50 bytes each, and as many of JSON.
constexpr int64_t kMaxPromptLogprobs = 1 << 18;
}  // namespace

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

std::unordered_map<const Route*, Json> make_body_schemas(const api::CallDefaults& defaults) {
    std::unordered_map<const Route*, Json> schemas;
    for (const Route& route : routes()) {
        if (route.body) schemas[&route] = route.body(defaults);
    }
    return schemas;
}

}  // namespace

Handlers::Handlers(const FrontendOptions& options, FrontendParts parts)
    : options_(options),
      body_schemas_(make_body_schemas(options.defaults)),
      parts_(std::move(parts)),
      encoder_(parts_.tokenizer, parts_.render_chat, options.context_length, options.defaults),
      metrics_(parts_.registry, options.served_model_name),
      started_(std::time(nullptr)),
      dispatcher_(Dispatcher::make(parts_.engine, dispatcher_options(options))),
      conversations_(std::make_shared<responses::Conversations>(responses::ConversationLimits{})),
      grammars_(parts_.tokenizer, {.eos_ids = options.eos_ids, .only_check = true}) {}

void Handlers::send_error(HttpCall& call, const ApiError& error) const {
    call.answer.send_error(call.request.path, error);
}

void Handlers::send_json(HttpCall& call, const Json& json) const {
    call.answer.send(200, {"application/json", json.dump()});
}

bool Handlers::read_body(HttpCall& call, Json& body) const {
    const int max_depth = options_.defaults.limits.max_json_depth;
    auto parsed = Json::parse(call.request.body, max_depth);
    if (!parsed) {
        send_error(call, {.message = fmt::format("the body is not JSON of at most {} levels "
                                                 "(http_max_json_depth): {}",
                                                 max_depth, parsed.message())});
        return false;
    }
    body = *std::move(parsed);
    if (!body.is_object()) {
        send_error(call, {.message = fmt::format("the body must be a JSON object, got {}",
                                                 body.type_name())});
        return false;
    }
    keep_fields_of(body_schemas_.at(call.route), body);
    call.request.body.clear();
    return true;
}

void Handlers::chat(HttpCall& call) { generate(call, openai::parse_chat, &Handlers::chat_format); }
void Handlers::completion(HttpCall& call) {
    generate(call, openai::parse_completion, &Handlers::completion_format);
}
void Handlers::messages(HttpCall& call) {
    generate(call, anthropic::parse_messages, &Handlers::messages_format);
}

void Handlers::native_generate(HttpCall& call) {
    generate(call, native::parse_generate, &Handlers::native_format);
}

bool Handlers::begin(HttpCall& http, Json& body) const {
    if (!stopping_) return read_body(http, body);
    send_error(http, {.status = 503, .message = "the server is stopping"});
    return false;
}

void Handlers::responses(HttpCall& http) {
    Json body;
    if (!begin(http, body)) return;
    Call call;
    responses::Given given;
    if (auto error =
            responses::parse_responses(body, options_.defaults, *conversations_, call, given)) {
        return send_error(http, *error);
    }
    if (call.model.empty()) call.model = options_.served_model_name;
    std::vector<EncodedPrompt> prompts;
    if (auto error = encode_all(call, prompts)) return send_error(http, *error);
    auto format = responses::responses_reply({.model = call.model,
                                              .created = std::time(nullptr),
                                              .temperature = call.sampling.temperature,
                                              .top_p = call.sampling.top_p,
                                              .given = std::move(given),
                                              .conversations = conversations_});
    check_and_start(std::move(call), std::move(prompts), std::move(format), http.answer);
}

void Handlers::generate(HttpCall& http, Parse* parse, MakeFormat make_format) {
    Json body;
    if (!begin(http, body)) return;
    Call call;
    if (auto error = parse(body, options_.defaults, call)) return send_error(http, *error);
    if (call.model.empty()) call.model = options_.served_model_name;
    std::vector<EncodedPrompt> prompts;
    if (auto error = encode_all(call, prompts)) return send_error(http, *error);
    auto format = (this->*make_format)(call, prompts);
    check_and_start(std::move(call), std::move(prompts), std::move(format), http.answer);
}

void Handlers::count_tokens(HttpCall& http) {
    Json body;
    if (!read_body(http, body)) return;
    Call call;
    if (auto error = anthropic::parse_count(body, options_.defaults, call)) {
        return send_error(http, *error);
    }
    std::vector<int32_t> ids;
    if (auto error = encoder_.encode(call.prompts.at(0), ids)) return send_error(http, *error);
    send_json(http, Json::object().set("input_tokens", static_cast<int64_t>(ids.size())));
}

MaybeError Handlers::encode_all(Call& call, std::vector<EncodedPrompt>& prompts) const {
    int64_t num_logprobs = 0;
    for (const api::Prompt& prompt : call.prompts) {
        EncodedPrompt encoded;
        if (auto error = encoder_.encode(prompt, encoded.ids, /*add_special_tokens=*/true,
                                         &call.parser.reasoning_open)) {
            return error;
        }
        const int num_tokens = static_cast<int>(encoded.ids.size());
        if (auto error = encoder_.fit(num_tokens, call, encoded.max_new_tokens)) return error;
        prompts.push_back(std::move(encoded));
        if (const int from = call.sampling.prompt_logprobs_from; from >= 0) {
            const auto each = 1 + call.sampling.num_top_logprobs +
                              static_cast<int64_t>(call.sampling.logprob_ids.size());
            num_logprobs += std::max(num_tokens - from, 0) * each * call.n;
        }
    }
    if (num_logprobs <= kMaxPromptLogprobs) return {};
    return ApiError{
        .message = fmt::format("the prompts' logprobs must be at most {} (tokens x (1 + "
                               "top_logprobs + token ids) x n), got {}",
                               kMaxPromptLogprobs, num_logprobs),
        .param = "logprobs"};
}

namespace {

openai::ReplyHeader reply_header(const char* id_prefix, const Call& call,
                                 const std::vector<EncodedPrompt>& prompts) {
    openai::ReplyHeader header{.id = id_prefix + api::random_hex(32),
                               .model = call.model,
                               .created = std::time(nullptr),
                               .n = call.n,
                               .include_usage = call.include_usage,
                               .continuous_usage_stats = call.continuous_usage_stats,
                               .return_token_ids = call.return_token_ids,
                               .logits_hash = call.logits_hash,
                               .logprobs = call.sampling.num_top_logprobs >= 0,
                               .prompt_token_ids = {},
                               .echo = {}};
    for (const EncodedPrompt& prompt : prompts) {
        if (call.return_token_ids) header.prompt_token_ids.push_back(prompt.ids);
    }
    return header;
}

}  // namespace

std::unique_ptr<api::ReplyFormat> Handlers::chat_format(
    const Call& call, const std::vector<EncodedPrompt>& prompts) const {
    return openai::chat_reply(reply_header("chatcmpl-", call, prompts));
}
std::unique_ptr<api::ReplyFormat> Handlers::completion_format(
    const Call& call, const std::vector<EncodedPrompt>& prompts) const {
    openai::ReplyHeader header = reply_header("cmpl-", call, prompts);
    for (size_t i = 0; call.echo && i < prompts.size(); ++i) {
        header.echo.push_back(encoder_.text_of(call.prompts[i], prompts[i].ids));
    }
    return openai::completion_reply(std::move(header));
}
std::unique_ptr<api::ReplyFormat> Handlers::native_format(
    const Call& call, const std::vector<EncodedPrompt>& prompts) const {
    native::ReplyHeader header{.id = call.rid.empty() ? api::random_hex(32) : call.rid,
                               .arrival = Clock::now(),
                               .n = call.n,
                               .num_prompt_tokens = {},
                               .is_batch = call.is_batch,
                               .logprobs = call.sampling.num_top_logprobs >= 0,
                               .drafts = options_.drafts};
    for (const EncodedPrompt& prompt : prompts) {
        header.num_prompt_tokens.push_back(static_cast<int>(prompt.ids.size()));
    }
    return native::generate_reply(std::move(header));
}
std::unique_ptr<api::ReplyFormat> Handlers::messages_format(
    const Call& call, const std::vector<EncodedPrompt>&) const {
    return anthropic::messages_reply(call.model);
}

void Handlers::check_and_start(Call call, std::vector<EncodedPrompt> prompts,
                               std::unique_ptr<api::ReplyFormat> format, const Answer& answer) {
    Grammar& grammar = call.sampling.grammar;
    if (grammar.kind == Grammar::Kind::kNone) {
        return start(std::move(call), std::move(prompts), std::move(format), answer);
    }
    grammar.after_reasoning = call.parser.reasoning_open;
    call.sampling.ignore_eos = false;  // nothing else could come
    struct Waiting {
        Call call;
        std::vector<EncodedPrompt> prompts;
        std::unique_ptr<api::ReplyFormat> format;
        Answer answer;
    };
    // Shared because a std::function is copied.
    auto waiting = std::make_shared<Waiting>(
        Waiting{std::move(call), std::move(prompts), std::move(format), answer});
    grammars_.compile(
        waiting->call.sampling.grammar, [this, waiting](const grammar::Outcome& outcome) {
            if (outcome.error.empty()) {
                return start(std::move(waiting->call), std::move(waiting->prompts),
                             std::move(waiting->format), waiting->answer);
            }
            const std::string& field = waiting->call.grammar_field;
            const ApiError error{.status = outcome.busy ? 503 : 400,
                                 .message = fmt::format("{} is refused: {}", field, outcome.error),
                                 .param = field};
            waiting->answer.send(waiting->format->status(error), waiting->format->error(error));
        });
}

void Handlers::start(Call call, std::vector<EncodedPrompt> prompts,
                     std::unique_ptr<api::ReplyFormat> format, const Answer& answer,
                     std::shared_ptr<Generation>* started) {
    call.prompts.clear();  // long, and no longer needed
    // Shared by its requests, which end one by one, and by whoever aborts it.
    auto generation = std::make_shared<Generation>(
        std::move(call), prompts, parts_.tokenizer, std::move(format), answer, metrics_,
        GenerationOptions{.stream_interval = options_.stream_interval});
    if (started) *started = generation;
    dispatcher_->run(generation, std::move(prompts), answer);
}

}  // namespace aerie::frontend
