#include "frontend/frontend.h"

#include <map>
#include <utility>

#include "frontend/authorize.h"
#include "frontend/handlers.h"
#include "frontend/routes.h"
#include "frontend/workers.h"

namespace aerie::frontend {
namespace {

constexpr double kLastWordsSeconds = 1;  // for answers that an abort ends
constexpr size_t kMaxWaitingJobs = 4096;
constexpr size_t kMaxShownPath = 200;      // bytes
constexpr const char* kNoRoute = "other";  // the label of all paths that do not exist

bool is_json(std::string_view content_type) {
    std::string type(content_type.substr(0, content_type.find(';')));
    while (!type.empty() && type.back() == ' ') type.pop_back();
    for (char& c : type) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return type.empty() || type == "application/json" ||
           (type.starts_with("application/") && type.ends_with("+json"));
}

http::ErrorBody http_error(int status, std::string_view path, const std::string& message) {
    api::Body body = error_body(path, {.status = status, .message = message});
    return {std::move(body.content_type), std::move(body.text)};
}

}  // namespace

struct Frontend::Impl {
    Impl(FrontendOptions given, FrontendParts parts)
        : options(std::move(given)), handlers(options, parts), keys(options) {
        for (const Route& route : routes()) {
            route_metrics.emplace(&route,
                                  metrics::HttpMetrics(parts.registry, route.path, route.method));
        }
        no_route_metrics = metrics::HttpMetrics(parts.registry, kNoRoute, "other");
    }

    void handle(http::Request request, http::Responder responder);
    void refuse(const http::Request& request, const std::string& allow, Answer answer);
    void stop(double limit_s);

    const FrontendOptions options;
    Handlers handlers;
    const Keys keys;
    std::map<const Route*, metrics::HttpMetrics> route_metrics;
    metrics::HttpMetrics no_route_metrics;
    // Ended before what its jobs use; the server ends before it and gives it no more.
    std::unique_ptr<Workers> workers;
    std::unique_ptr<http::Server> server;
};

void Frontend::Impl::refuse(const http::Request& request, const std::string& allow, Answer answer) {
    const std::string path = request.path.substr(0, kMaxShownPath);
    if (request.method == "OPTIONS" && !allow.empty()) {
        return answer.send(200, {}, {{"Allow", allow}});
    }
    if (!allow.empty()) {
        const std::string message =
            fmt::format("{} does not answer to {}, only to {}", path, request.method, allow);
        return answer.send_error(request.path, {.status = 405, .message = message},
                                 {{"Allow", allow}});
    }
    const std::string message = fmt::format("there is no path {}{}", path, probable_path(path));
    answer.send_error(request.path, {.status = 404, .message = message});
}

void Frontend::Impl::handle(http::Request request, http::Responder responder) {
    Match found = match(request.method, request.path);
    if (!found.route) {
        return refuse(request, found.allow, Answer(std::move(responder), no_route_metrics));
    }
    const Route& route = *found.route;
    HttpCall call{.route = &route,
                  .request = std::move(request),
                  .parameter = std::move(found.parameter),
                  .answer = Answer(std::move(responder), route_metrics.at(&route))};
    if (!keys.allow(route.auth, call.request)) {
        return call.answer.send_error(
            call.request.path,
            {.status = 401,
             .message = "the API key is missing or wrong: send it as \"Authorization: Bearer KEY\" "
                        "or \"x-api-key: KEY\"",
             .code = "invalid_api_key"},
            {{"WWW-Authenticate", "Bearer"}});
    }
    const std::string_view type = call.request.header("Content-Type");
    if (std::string_view(route.method) == "POST" && !is_json(type)) {
        return call.answer.send_error(
            call.request.path,
            {.status = 415,
             .message = fmt::format("the content type must be application/json, got {}", type)});
    }
    if (route.runs == Runs::kAtOnce) return (handlers.*route.handler)(call);
    Answer answer = call.answer;
    const std::string path = call.request.path;
    const bool taken = workers->run(
        [this, &route, call = std::move(call)]() mutable { (handlers.*route.handler)(call); });
    if (!taken) {
        answer.send_error(path, {.status = 503,
                                 .message = fmt::format("too many requests wait to be read, at "
                                                        "most {} may",
                                                        kMaxWaitingJobs)});
    }
}

void Frontend::Impl::stop(double limit_s) {
    const TimePoint deadline = after(limit_s);
    handlers.set_stopping();
    handlers.dispatcher().refuse_new();
    handlers.dispatcher().wait_idle(limit_s);
    handlers.dispatcher().abort("", /*all=*/true);  // what still runs is told so before the port closes
    if (server) server->stop(std::max(kLastWordsSeconds, seconds_between(Clock::now(), deadline)));
}

Frontend::Frontend(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Frontend::~Frontend() { stop(0); }

Result<std::unique_ptr<Frontend>> Frontend::start(FrontendOptions options, FrontendParts parts) {
    auto impl = std::make_unique<Impl>(std::move(options), std::move(parts));
    impl->workers = std::make_unique<Workers>(impl->options.num_workers, kMaxWaitingJobs);
    auto server = http::Server::start(
        impl->options.http,
        [raw = impl.get()](http::Request request, http::Responder responder) {
            raw->handle(std::move(request), std::move(responder));
        },
        http_error);
    if (!server) return server.error();
    impl->server = *std::move(server);
    return std::unique_ptr<Frontend>(new Frontend(std::move(impl)));
}

int Frontend::port() const { return impl_->server->port(); }

void Frontend::stop(double limit_s) { impl_->stop(limit_s); }

}  // namespace aerie::frontend
