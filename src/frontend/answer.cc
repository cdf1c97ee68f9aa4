#include "frontend/answer.h"

#include <atomic>
#include <utility>

#include "api/anthropic/reply.h"
#include "api/openai/reply.h"

namespace aerie::frontend {

constexpr int kClientGone = 499;  // as nginx counts an answer that nobody waited for

namespace {

bool is_anthropic(std::string_view path) {
    if (path.starts_with("/v1")) path.remove_prefix(3);
    return path == "/messages" || path.starts_with("/messages/");
}

}  // namespace

api::Body error_body(std::string_view path, const api::ApiError& error) {
    return is_anthropic(path) ? anthropic::error_body(error) : openai::error_body(error);
}

struct Answer::State {
    http::Responder responder;
    metrics::HttpMetrics metrics;
    TimePoint arrival = Clock::now();
    std::atomic<int> status{kClientGone};
    State(http::Responder r, metrics::HttpMetrics m)
        : responder(std::move(r)), metrics(std::move(m)) {
        metrics.began();
    }
    ~State() { metrics.ended(status); }
};

Answer::Answer(http::Responder responder, metrics::HttpMetrics metrics)
    : state_(std::make_shared<State>(std::move(responder), std::move(metrics))) {}

void Answer::send(int status, const api::Body& body, http::Headers headers) {
    state_->status = status;
    state_->responder.send(status, body.content_type, body.text, std::move(headers));
}
void Answer::send_error(std::string_view path, const api::ApiError& error, http::Headers headers) {
    send(is_anthropic(path) ? anthropic::status_of(error) : error.status, error_body(path, error),
         std::move(headers));
}
void Answer::start_events() {
    state_->status = 200;
    state_->responder.start_stream(200, "text/event-stream; charset=utf-8",
                                   {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
}
bool Answer::write(std::string_view bytes) { return state_->responder.write(bytes); }
void Answer::finish() { state_->responder.finish(); }
void Answer::on_disconnect(std::function<void()> callback) {
    state_->responder.on_disconnect(std::move(callback));
}
TimePoint Answer::arrival() const { return state_->arrival; }

}  // namespace aerie::frontend
