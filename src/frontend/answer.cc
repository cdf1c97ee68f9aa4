#include "frontend/answer.h"

#include <atomic>
#include <utility>

namespace aerie::frontend {

constexpr int kClientGone = 499;  // as nginx counts an answer that nobody waited for

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
