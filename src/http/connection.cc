#include "http/connection.h"

#include <fmt/core.h>

#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/log.h"
#include "http/response_head.h"
#include "http/url.h"

namespace aerie::http {
namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
namespace {

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
constexpr size_t kWritePiece = 256 << 10;  // bytes that one write limit is for
constexpr double kLingerSeconds = 1;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

bool has_token(std::string_view value, std::string_view token) {
    return boost::beast::http::token_list({value.data(), value.size()})
        .exists({token.data(), token.size()});
}

bool is_line_end(const boost::beast::flat_buffer& buffer) {
    const char c = *static_cast<const char*>(buffer.data().data());
    return c == '\r' || c == '\n';
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, ConnectionContext& context)
    : stream_(std::move(socket), context.tls.get()),
      context_(context),
      activity_(stream_.executor()),
      input_wanted_(stream_.executor()),
      limit_(stream_.executor()) {}

Connection::~Connection() {
    if (exchange_) exchange_->detach();
}

void Connection::start() {
    auto self = shared_from_this();  // each coroutine keeps the connection alive
    asio::co_spawn(stream_.executor(), [self] { return self->begin(); }, asio::detached);
}

asio::awaitable<void> Connection::begin() {
    auto self = shared_from_this();
    if (!co_await handshake()) {
        close();
        context_.on_end(this);
        co_return;
    }
    asio::co_spawn(stream_.executor(), [self] { return self->read_loop(); }, asio::detached);
    asio::co_spawn(stream_.executor(), [self] { return self->serve_loop(); }, asio::detached);
}

asio::awaitable<bool> Connection::handshake() {
    if (!stream_.is_tls()) co_return true;
    idle_ = true;
    close_after(context_.options.header_timeout_s);
    const auto error = co_await stream_.handshake();
    keep_open();
    idle_ = false;
    if (error) log_debug("a client's TLS handshake failed: {}", error.message());
    co_return !error && stream_.is_open();
}

void Connection::drain() {
    asio::post(stream_.executor(), [self = shared_from_this()] {
        if (self->idle_) self->close();
    });
}

// Both are called by the exchange too, under its lock: where there is no self any more, the
// destructor waits for that lock to detach.
void Connection::cut() {
    auto self = weak_from_this().lock();
    if (self) asio::post(stream_.executor(), [self] { self->close(); });
}

void Connection::wake() {
    auto self = weak_from_this().lock();
    if (self) asio::post(stream_.executor(), [self] { self->activity_.cancel(); });
}

void Connection::close_after(double limit_s) {
    limit_.expires_at(after(limit_s));
    limit_.async_wait([self = shared_from_this()](boost::system::error_code error) {
        // expiry(): a wait that ended just before the limit was moved counts for nothing.
        if (!error && self->limit_.expiry() <= Clock::now()) self->close();
    });
}

void Connection::close() {
    stream_.close();
    lose_client();
}

void Connection::lose_client() {
    client_gone_ = true;
    if (exchange_) exchange_->client_gone();
    end_input();
}

void Connection::end_input() {
    input_ended_ = true;
    activity_.cancel();
    input_wanted_.cancel();
}

void Connection::consume(size_t num_bytes) {
    input_.consume(num_bytes);
    input_wanted_.cancel();
}

asio::awaitable<void> Connection::read_loop() {
    const size_t limit = context_.options.max_header_bytes + context_.options.max_pipelined_bytes;
    while (!input_ended_) {
        while (!discard_input_ && !input_ended_ && input_.size() >= limit) {
            input_wanted_.expires_at(TimePoint::max());
            co_await input_wanted_.async_wait(kNoThrow);
        }
        if (input_ended_) break;
        auto [error, size] = co_await stream_.read_some(asio::buffer(chunk_));
        if (error == asio::error::eof && !answer_begun_) {
            end_input();
            co_await stream_.wait_lost();
        }
        if (error) break;
        if (!discard_input_) {
            auto room = input_.prepare(size);
            input_.commit(asio::buffer_copy(room, asio::buffer(chunk_.data(), size)));
        }
        activity_.cancel();
    }
    lose_client();
}

asio::awaitable<bool> Connection::wait_input(TimePoint deadline) {
    const size_t before = input_.size();
    while (input_.size() == before && !input_ended_) {
        if (Clock::now() >= deadline) co_return false;
        activity_.expires_at(deadline);
        co_await activity_.async_wait(kNoThrow);
    }
    co_return input_.size() != before;
}

asio::awaitable<void> Connection::serve_loop() {
    for (bool more = true; more;) {
        Request request;
        ExchangeOptions options;
        const bool complete = co_await read_request(request, options);
        if (!complete && !refusal_) break;
        options.keep_alive = options.keep_alive && complete;
        options.max_unsent_bytes = context_.options.max_unsent_bytes;
        exchange_ = std::make_shared<Exchange>(options, this);
        if (client_gone_) exchange_->client_gone();
        answer_begun_ = false;
        may_probe_ = !options.is_http_1_0;
        if (!complete) {
            const ErrorBody body =
                context_.error_format(refusal_->status, path_, refusal_->message);
            exchange_->send(refusal_->status, body.content_type, body.body, {});
        } else if (!answer_preflight(request, *exchange_)) {
            context_.handler(std::move(request), Responder(exchange_));
        }
        more = co_await write_answer();
        exchange_->detach();
        exchange_.reset();
    }
    co_await linger();
    close();
    context_.on_end(this);
}

asio::awaitable<bool> Connection::write_answer() {
    for (;;) {
        const Exchange::Output output = exchange_->take();
        answer_begun_ |= !output.bytes.empty();
        const bool sent = output.bytes.empty() || output.cut || co_await write_all(output.bytes);
        exchange_->sent(output.bytes.size());
        if (output.cut || !sent) close();
        if (!stream_.is_open()) co_return false;  // whether or not the handler has finished
        if (output.finished) co_return output.keep_alive;
        if (!output.bytes.empty()) continue;
        if (input_ended_ && !answer_begun_ && std::exchange(may_probe_, false)) {
            if (!co_await write_all(kContinue)) close();
            continue;
        }
        // Nothing on this strand has run since take(), so a wake() after it is still to come.
        activity_.expires_at(TimePoint::max());
        co_await activity_.async_wait(kNoThrow);
    }
}

asio::awaitable<bool> Connection::write_all(std::string_view bytes) {
    while (!bytes.empty() && stream_.is_open()) {
        close_after(context_.options.write_timeout_s);
        const auto piece = asio::buffer(bytes.data(), std::min(bytes.size(), kWritePiece));
        auto [error, size] = co_await stream_.write_some(piece);
        keep_open();
        if (error) co_return false;
        bytes.remove_prefix(size);
    }
    co_return bytes.empty();
}

// A connection that is closed with unread bytes resets, and the client may lose the answer that
// tells it why. So the answer is ended, and for a moment what still comes is thrown away. With TLS the
// end is always told: a client must know that an answer without a length is whole.
asio::awaitable<void> Connection::linger() {
    const bool is_ended = input_ended_ || (!unread_rest_ && input_.size() == 0);
    if (client_gone_ || (is_ended && !stream_.is_tls())) co_return;
    discard_input_ = true;
    input_wanted_.cancel();
    close_after(kLingerSeconds);
    co_await stream_.end_output();
    while (!input_ended_) {
        activity_.expires_at(TimePoint::max());
        co_await activity_.async_wait(kNoThrow);
    }
    keep_open();
}

bool Connection::refuse(int status, std::string message) {
    refusal_ = Refusal{status, std::move(message)};
    unread_rest_ = true;
    return false;
}

bool Connection::refuse_syntax(const boost::system::error_code& error) {
    const ServerOptions& options = context_.options;
    if (error == beast_http::error::body_limit) {
        return refuse(413, fmt::format("the request body is larger than {} bytes (http_max_body_mb)",
                                       options.max_body_bytes));
    }
    if (error == beast_http::error::header_limit) {
        return refuse(431, fmt::format("the request headers are larger than {} bytes "
                                       "(http_max_header_kb)",
                                       options.max_header_bytes));
    }
    return refuse(400, fmt::format("this is not an HTTP/1.1 request: {}", error.message()));
}

asio::awaitable<bool> Connection::read_request(Request& request, ExchangeOptions& exchange) {
    path_.clear();
    query_.clear();
    Parser parser;
    parser.header_limit(static_cast<std::uint32_t>(context_.options.max_header_bytes));
    parser.body_limit(context_.options.max_body_bytes);
    if (!co_await read_header(parser)) co_return false;
    if (!check_header(parser)) co_return false;
    const auto& message = parser.get();
    if (!parser.is_done() && message.version() >= 11 &&
        has_token(message[beast_http::field::expect], "100-continue")) {
        if (!co_await write_all(kContinue)) co_return false;
    }
    if (!co_await read_body(parser)) co_return false;
    exchange.is_head = message.method() == beast_http::verb::head;
    exchange.is_http_1_0 = message.version() < 11;
    exchange.keep_alive = message.keep_alive();
    fill_request(parser, request);
    co_return true;
}

asio::awaitable<bool> Connection::read_header(Parser& parser) {
    if (input_.size() == 0) {
        idle_ = true;
        if (context_.draining) co_return false;
        const bool some = co_await wait_input(after(context_.options.idle_timeout_s));
        idle_ = false;
        if (!some) co_return false;
    }
    const TimePoint deadline = after(context_.options.header_timeout_s);
    for (;;) {
        // Empty lines before a request are skipped (RFC 9112, section 2.2).
        while (!parser.got_some() && input_.size() > 0 && is_line_end(input_)) consume(1);
        boost::system::error_code error;
        consume(parser.put(input_.data(), error));
        if (error && error != beast_http::error::need_more) {
            if (!set_path(parser)) path_.clear();
            co_return refuse_syntax(error);
        }
        if (parser.is_header_done()) co_return true;
        if (input_.size() > context_.options.max_header_bytes) {
            co_return refuse_syntax(beast_http::make_error_code(beast_http::error::header_limit));
        }
        if (!co_await wait_input(deadline)) {
            if (input_ended_) co_return false;
            co_return refuse(408, fmt::format("the request headers did not come within {} s "
                                              "(http_header_timeout_s)",
                                              context_.options.header_timeout_s));
        }
    }
}

Status Connection::set_path(const Parser& parser) {
    const auto text = parser.get().target();
    auto target = parse_target({text.data(), text.size()});
    if (!target) return target.error();
    path_ = std::move(target->path);
    query_ = std::move(target->query);
    return {};
}

bool Connection::check_header(const Parser& parser) {
    const auto& message = parser.get();
    const size_t url_size = message.target().size();
    if (url_size > context_.options.max_url_bytes) {
        return refuse(414, fmt::format("the URL has {} bytes, at most {} are read (http_max_url_kb)",
                                       url_size, context_.options.max_url_bytes));
    }
    if (auto status = set_path(parser); !status) return refuse(400, status.message());
    const auto num_headers = std::distance(message.begin(), message.end());
    if (num_headers > context_.options.max_headers) {
        return refuse(431, fmt::format("the request has {} headers, at most {} are read "
                                       "(http_max_headers)",
                                       num_headers, context_.options.max_headers));
    }
    // Its body would have no length: it would be read as the next request.
    const auto coding = message.find(beast_http::field::transfer_encoding);
    if (coding != message.end() && !parser.chunked()) {
        return refuse(400, fmt::format("Transfer-Encoding must be chunked, got {}",
                                       std::string(coding->value())));
    }
    return true;
}

asio::awaitable<bool> Connection::read_body(Parser& parser) {
    parser.eager(true);
    const TimePoint deadline = after(context_.options.body_timeout_s);
    while (!parser.is_done()) {
        boost::system::error_code error;
        if (input_.size() > 0) {
            const size_t size = parser.put(input_.data(), error);
            consume(size);
            if (error && error != beast_http::error::need_more) co_return refuse_syntax(error);
            if (size > 0) continue;
        }
        if (!co_await wait_input(deadline)) {
            if (input_ended_) co_return false;
            co_return refuse(408, fmt::format("the request body did not come within {} s "
                                              "(http_body_timeout_s)",
                                              context_.options.body_timeout_s));
        }
    }
    co_return true;
}

void Connection::fill_request(Parser& parser, Request& request) {
    auto message = parser.release();
    request.method = std::string(message.method_string().data(), message.method_string().size());
    request.path = path_;
    request.query = query_;
    for (const auto& field : message) {
        request.headers.push_back(
            {std::string(field.name_string().data(), field.name_string().size()),
             std::string(field.value().data(), field.value().size())});
    }
    request.body = std::move(message.body());
}

// What a browser asks before it lets a page of another origin call.
bool Connection::answer_preflight(const Request& request, Exchange& exchange) {
    if (request.method != "OPTIONS") return false;
    if (request.header("Access-Control-Request-Method").empty()) return false;
    const std::string_view wanted = request.header("Access-Control-Request-Headers");
    exchange.send(200, "", "",
                  {{"Access-Control-Allow-Methods", "GET, POST, PUT, DELETE, HEAD, OPTIONS"},
                   {"Access-Control-Allow-Headers", wanted.empty() ? "*" : std::string(wanted)},
                   {"Access-Control-Max-Age", "600"}});
    return true;
}

}  // namespace aerie::http
