// Exchange: one request being answered. The one place where a handler's threads and the
// connection's I/O thread meet.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "http/message.h"

namespace aerie::http {

// The connection, as an exchange sees it. Any thread.
class OutputWaiter {
  public:
    virtual void wake() = 0;  // there is something to take()
    virtual void cut() = 0;   // close at once, in the middle of a write too
    virtual bool closes_after_this() const = 0;

  protected:
    ~OutputWaiter() = default;
};

struct ExchangeOptions {
    bool is_head = false;          // the body is left out, its length is told
    bool is_http_1_0 = false;      // a stream ends with the connection, without chunks
    bool keep_alive = true;
    size_t max_unsent_bytes = 0;   // of a stream
};

class Exchange {
  public:
    Exchange(const ExchangeOptions& options, OutputWaiter* waiter);

    // The handler's side: see Responder.
    void send(int status, std::string_view content_type, std::string body, const Headers& headers);
    void start_stream(int status, std::string_view content_type, const Headers& headers);
    bool write(std::string_view bytes);
    void finish();
    void on_disconnect(std::function<void()> callback);
    void abandon();  // no Responder is left

    // The connection's side.
    struct Output {
        std::string bytes;
        bool finished = false;    // nothing comes after `bytes`
        bool cut = false;         // close without more
        bool keep_alive = false;  // valid once finished
    };
    Output take();
    void sent(size_t num_bytes);  // of what take() gave
    void client_gone();           // calls the callback; idempotent
    void detach();                // the waiter is about to go away

  private:
    void put_head(int status, std::string_view content_type, const Headers& headers,
                  const size_t* content_length);
    void wake_waiter();

    const ExchangeOptions options_;
    mutable std::mutex mutex_;
    OutputWaiter* waiter_;         // null once detached
    bool keep_alive_;
    bool started_ = false;         // the head is out
    bool finished_ = false;
    bool gone_ = false;            // nobody reads any more
    bool cut_ = false;
    bool woken_ = false;           // wake() was called and take() has not been yet
    std::string output_;           // not taken yet
    size_t num_taken_unsent_ = 0;  // bytes
    size_t largest_piece_ = 0;     // of the stream, bytes
    std::function<void()> on_disconnect_;
};

}  // namespace aerie::http
