// Answer: the Responder of one HTTP request, counted in the metrics.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "api/error.h"
#include "api/reply.h"
#include "base/clock.h"
#include "http/message.h"
#include "metrics/components.h"

namespace aerie::frontend {

// A handle that is cheap to copy; any thread. Ends with its last copy, like a Responder.
class Answer {
  public:
    Answer(http::Responder responder, metrics::HttpMetrics metrics);

    void send(int status, const api::Body& body, http::Headers headers = {});
    // Of the call at `path`, in the format of its API.
    void send_error(std::string_view path, const api::ApiError& error, http::Headers headers = {});
    void start_events();  // a stream of server-sent events
    bool write(std::string_view bytes);
    void finish();
    void on_disconnect(std::function<void()> callback);  // see Responder

    TimePoint arrival() const;

  private:
    struct State;
    std::shared_ptr<State> state_;
};

// An error in the format of the API that `path` belongs to.
api::Body error_body(std::string_view path, const api::ApiError& error);

}  // namespace aerie::frontend
