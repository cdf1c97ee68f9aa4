// One client's connection: reads requests, hands them to the handler one at a time, writes answers.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/clock.h"
#include "http/exchange.h"
#include "http/server.h"
#include "http/stream.h"
#include "http/tls.h"

namespace aerie::http {

// What the connections of a server share. Outlives them.
struct ConnectionContext {
    ServerOptions options;
    Handler handler;
    ErrorFormat error_format;
    std::unique_ptr<TlsContext> tls;  // null: plain HTTP
    std::function<void(class Connection*)> on_end;
    std::atomic<bool> draining{false};
};

// Two coroutines on one strand: read_loop() only moves bytes from the socket to input_, so that the
// end of the connection is seen while a request runs; serve_loop() does everything else.
//
// A client that ends its side before its answer has begun may still read it (a half-close), or have
// gone: TCP does not tell until something is written. So it is sent a 100 Continue, which every client
// skips and which the system of one that has gone answers with a reset. Once an answer has begun, a
// client that ends its side has gone.
class Connection final : public OutputWaiter, public std::enable_shared_from_this<Connection> {
  public:
    // `socket` runs on a strand of its own.
    Connection(boost::asio::ip::tcp::socket socket, ConnectionContext& context);
    ~Connection();

    // Any thread.
    void start();
    void drain();  // close now where idle, else after the running request
    void cut() override;
    void wake() override;
    bool closes_after_this() const override { return context_.draining; }

  private:
    using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
    template <typename T>
    using Awaitable = boost::asio::awaitable<T>;
    struct Refusal {
        int status;
        std::string message;
    };

    Awaitable<void> begin();
    Awaitable<bool> handshake();
    Awaitable<void> read_loop();
    Awaitable<void> serve_loop();

    // False: the connection ends, quietly or with refusal_.
    Awaitable<bool> read_request(Request& request, ExchangeOptions& exchange);
    Awaitable<bool> read_header(Parser& parser);
    Awaitable<bool> read_body(Parser& parser);
    bool check_header(const Parser& parser);
    void fill_request(Parser& parser, Request& request);
    Status set_path(const Parser& parser);
    bool refuse(int status, std::string message);
    bool refuse_syntax(const boost::system::error_code& error);
    bool answer_preflight(const Request& request, Exchange& exchange);

    Awaitable<bool> write_answer();             // true: the next request may follow
    Awaitable<bool> write_all(std::string_view bytes);  // false: the client has gone
    Awaitable<bool> wait_input(TimePoint deadline);     // false: time is up or the input has ended
    Awaitable<void> linger();
    void consume(size_t num_bytes);
    void close_after(double limit_s);  // unless keep_open() comes first; one limit at a time
    void keep_open() { limit_.expires_at(TimePoint::max()); }
    void close();
    void lose_client();
    void end_input();

    Stream stream_;
    ConnectionContext& context_;
    boost::asio::steady_timer activity_;      // cancelled where serve_loop should look again
    boost::asio::steady_timer input_wanted_;  // cancelled where read_loop may go on
    boost::asio::steady_timer limit_;         // of a write, a handshake, a farewell
    std::array<char, 16 << 10> chunk_;
    boost::beast::flat_buffer input_;
    bool input_ended_ = false;
    bool client_gone_ = false;   // nobody reads any more
    bool answer_begun_ = false;  // the first byte of the running request's answer is out
    bool may_probe_ = false;     // the running request is HTTP/1.1 and has not been probed
    bool discard_input_ = false;
    bool idle_ = false;        // no byte of a (next) request has come
    bool unread_rest_ = false; // the client may still be sending a request that was refused
    std::string path_, query_; // of the request being read
    std::optional<Refusal> refusal_;
    std::shared_ptr<Exchange> exchange_;  // shared with the Responders of the running request
};

}  // namespace aerie::http
