#include "frontend/routes.h"

#include <vector>

#include "config/nearest.h"
#include "frontend/handlers.h"
#include "frontend/reply_schemas.h"

namespace aerie::frontend {
namespace {

constexpr std::string_view kParameter = "{id}";

const Route kRoutes[] = {
    {"POST", "/v1/chat/completions", Auth::kNormal, Runs::kOnWorker, &Handlers::chat,
     "A chat of OpenAI's API", chat_body, kChatReply},
    {"POST", "/chat/completions", Auth::kNormal, Runs::kOnWorker, &Handlers::chat,
     "A chat of OpenAI's API", chat_body, kChatReply},
    {"POST", "/v1/completions", Auth::kNormal, Runs::kOnWorker, &Handlers::completion,
     "A completion of OpenAI's API", completion_body, kCompletionReply},
    {"POST", "/completions", Auth::kNormal, Runs::kOnWorker, &Handlers::completion,
     "A completion of OpenAI's API", completion_body, kCompletionReply},
    {"POST", "/v1/messages", Auth::kNormal, Runs::kOnWorker, &Handlers::messages,
     "A message of Anthropic's API", messages_body, kMessagesReply},
    {"POST", "/messages", Auth::kNormal, Runs::kOnWorker, &Handlers::messages,
     "A message of Anthropic's API", messages_body, kMessagesReply},
    {"POST", "/v1/messages/count_tokens", Auth::kNormal, Runs::kOnWorker, &Handlers::count_tokens,
     "The input tokens that a message would have", count_tokens_body, kCountReply},
    {"POST", "/messages/count_tokens", Auth::kNormal, Runs::kOnWorker, &Handlers::count_tokens,
     "The input tokens that a message would have", count_tokens_body, kCountReply},
    {"POST", "/v1/responses", Auth::kNormal, Runs::kOnWorker, &Handlers::responses,
     "A response of OpenAI's Responses API", responses_body, kResponsesReply},
    {"POST", "/responses", Auth::kNormal, Runs::kOnWorker, &Handlers::responses,
     "A response of OpenAI's Responses API", responses_body, kResponsesReply},
    {"POST", "/generate", Auth::kNormal, Runs::kOnWorker, &Handlers::native_generate,
     "SGLang's native API", generate_body, kGenerateReply},
    {"GET", "/", Auth::kOpen, Runs::kAtOnce, &Handlers::root, "That a server is here"},
    {"GET", "/v1/models", Auth::kNormal, Runs::kAtOnce, &Handlers::models, "The model", nullptr,
     kModelsReply},
    {"GET", "/models", Auth::kNormal, Runs::kAtOnce, &Handlers::models, "The model", nullptr,
     kModelsReply},
    {"GET", "/v1/models/{id}", Auth::kNormal, Runs::kAtOnce, &Handlers::model,
     "The model by its name", nullptr, kModelReply},
    {"GET", "/models/{id}", Auth::kNormal, Runs::kAtOnce, &Handlers::model, "The model by its name",
     nullptr, kModelReply},
    {"GET", "/health", Auth::kOpen, Runs::kAtOnce, &Handlers::health,
     "200 where requests can be served, without asking the model"},
    {"GET", "/health_generate", Auth::kOpen, Runs::kAtOnce, &Handlers::health_generate,
     "200 once a token was generated"},
    {"GET", "/ping", Auth::kNormal, Runs::kAtOnce, &Handlers::ping, "That the server answers"},
    {"GET", "/metrics", Auth::kOpen, Runs::kOnWorker, &Handlers::metrics,
     "Prometheus metrics of all processes"},
    {"GET", "/model_info", Auth::kNormal, Runs::kAtOnce, &Handlers::model_info,
     "What the model is"},
    {"GET", "/get_model_info", Auth::kNormal, Runs::kAtOnce, &Handlers::model_info,
     "What the model is"},
    {"GET", "/server_info", Auth::kNormal, Runs::kOnWorker, &Handlers::server_info,
     "Every setting, the replicas and the placement"},
    {"GET", "/get_server_info", Auth::kNormal, Runs::kOnWorker, &Handlers::server_info,
     "Every setting, the replicas and the placement"},
    {"GET", "/v1/loads", Auth::kNormal, Runs::kOnWorker, &Handlers::loads,
     "The load of each replica"},
    {"POST", "/tokenize", Auth::kNormal, Runs::kOnWorker, &Handlers::tokenize,
     "Token ids of a text or a chat", tokenize_body, kTokenizeReply},
    {"POST", "/v1/tokenize", Auth::kNormal, Runs::kOnWorker, &Handlers::tokenize,
     "Token ids of a text or a chat", tokenize_body, kTokenizeReply},
    {"POST", "/detokenize", Auth::kNormal, Runs::kOnWorker, &Handlers::detokenize,
     "The text of token ids", detokenize_body, kTextReply},
    {"POST", "/v1/detokenize", Auth::kNormal, Runs::kOnWorker, &Handlers::detokenize,
     "The text of token ids", detokenize_body, kTextReply},
    {"GET", "/flush_cache", Auth::kAdmin, Runs::kOnWorker, &Handlers::flush_cache,
     "Empties the prefix caches where no request runs"},
    {"POST", "/flush_cache", Auth::kAdmin, Runs::kOnWorker, &Handlers::flush_cache,
     "Empties the prefix caches where no request runs"},
    {"POST", "/parse_function_call", Auth::kNormal, Runs::kOnWorker, &Handlers::parse_function_call,
     "Tool calls in a text", parse_function_call_body, kCallsReply},
    {"POST", "/separate_reasoning", Auth::kNormal, Runs::kOnWorker, &Handlers::separate_reasoning,
     "Reasoning and content of a text", separate_reasoning_body, kReasoningReply},
    {"GET", "/openapi.json", Auth::kOpen, Runs::kOnWorker, &Handlers::openapi,
     "This API as an OpenAPI document"},
    {"GET", "/docs", Auth::kOpen, Runs::kOnWorker, &Handlers::docs, "This API as a page"},
    {"POST", "/abort_request", Auth::kAdmin, Runs::kOnWorker, &Handlers::abort_request,
     "Ends the calls with a rid, or all", abort_body},
};

bool matches(const Route& route, std::string_view path, std::string& parameter) {
    std::string_view pattern = route.path;
    if (!pattern.ends_with(kParameter)) return pattern == path;
    pattern.remove_suffix(kParameter.size());
    if (!path.starts_with(pattern) || path.size() == pattern.size()) return false;
    parameter = path.substr(pattern.size());
    return true;
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

Match match(std::string_view method, std::string_view path) {
    if (method == "HEAD") method = "GET";
    if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
    Match result;
    for (const Route& route : kRoutes) {
        std::string parameter;
        if (!matches(route, path, parameter)) continue;
        if (method == route.method) {
            result.route = &route;
            result.parameter = std::move(parameter);
            return result;
        }
        if (!result.allow.empty()) result.allow += ", ";
        result.allow += route.method;
        if (std::string_view(route.method) == "GET") result.allow += ", HEAD";
    }
    if (!result.allow.empty()) result.allow += ", OPTIONS";
    return result;
}

std::string probable_path(std::string_view path) {
    std::vector<std::string> known;
    for (const Route& route : kRoutes) {
        if (!std::string_view(route.path).ends_with(kParameter)) known.emplace_back(route.path);
    }
    return did_you_mean(path, known);
}

}  // namespace aerie::frontend
