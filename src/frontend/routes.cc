#include "frontend/routes.h"

#include <vector>

#include "config/nearest.h"
#include "frontend/handlers.h"

namespace aerie::frontend {
namespace {

constexpr std::string_view kParameter = "{id}";

const Route kRoutes[] = {
    {"POST", "/v1/chat/completions", Auth::kNormal, Runs::kOnWorker, &Handlers::chat},
    {"POST", "/chat/completions", Auth::kNormal, Runs::kOnWorker, &Handlers::chat},
    {"POST", "/v1/completions", Auth::kNormal, Runs::kOnWorker, &Handlers::completion},
    {"POST", "/completions", Auth::kNormal, Runs::kOnWorker, &Handlers::completion},
    {"POST", "/v1/messages", Auth::kNormal, Runs::kOnWorker, &Handlers::messages},
    {"POST", "/messages", Auth::kNormal, Runs::kOnWorker, &Handlers::messages},
    {"POST", "/v1/messages/count_tokens", Auth::kNormal, Runs::kOnWorker, &Handlers::count_tokens},
    {"POST", "/messages/count_tokens", Auth::kNormal, Runs::kOnWorker, &Handlers::count_tokens},
    {"GET", "/", Auth::kOpen, Runs::kAtOnce, &Handlers::root},
    {"GET", "/v1/models", Auth::kNormal, Runs::kAtOnce, &Handlers::models},
    {"GET", "/models", Auth::kNormal, Runs::kAtOnce, &Handlers::models},
    {"GET", "/v1/models/{id}", Auth::kNormal, Runs::kAtOnce, &Handlers::model},
    {"GET", "/models/{id}", Auth::kNormal, Runs::kAtOnce, &Handlers::model},
    {"GET", "/health", Auth::kOpen, Runs::kAtOnce, &Handlers::health},
    {"GET", "/health_generate", Auth::kOpen, Runs::kAtOnce, &Handlers::health_generate},
    {"GET", "/ping", Auth::kNormal, Runs::kAtOnce, &Handlers::ping},
    {"GET", "/metrics", Auth::kOpen, Runs::kOnWorker, &Handlers::metrics},
    {"GET", "/model_info", Auth::kNormal, Runs::kAtOnce, &Handlers::model_info},
    {"GET", "/get_model_info", Auth::kNormal, Runs::kAtOnce, &Handlers::model_info},
    {"GET", "/server_info", Auth::kNormal, Runs::kOnWorker, &Handlers::server_info},
    {"GET", "/get_server_info", Auth::kNormal, Runs::kOnWorker, &Handlers::server_info},
    {"GET", "/v1/loads", Auth::kNormal, Runs::kOnWorker, &Handlers::loads},
    {"POST", "/tokenize", Auth::kNormal, Runs::kOnWorker, &Handlers::tokenize},
    {"POST", "/v1/tokenize", Auth::kNormal, Runs::kOnWorker, &Handlers::tokenize},
    {"POST", "/detokenize", Auth::kNormal, Runs::kOnWorker, &Handlers::detokenize},
    {"POST", "/v1/detokenize", Auth::kNormal, Runs::kOnWorker, &Handlers::detokenize},
    {"GET", "/flush_cache", Auth::kAdmin, Runs::kOnWorker, &Handlers::flush_cache},
    {"POST", "/flush_cache", Auth::kAdmin, Runs::kOnWorker, &Handlers::flush_cache},
    {"POST", "/parse_function_call", Auth::kNormal, Runs::kOnWorker,
     &Handlers::parse_function_call},
    {"POST", "/separate_reasoning", Auth::kNormal, Runs::kOnWorker,
     &Handlers::separate_reasoning},
    {"POST", "/abort_request", Auth::kAdmin, Runs::kOnWorker, &Handlers::abort_request},
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
