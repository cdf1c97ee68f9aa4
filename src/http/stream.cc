#include "http/stream.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "http/tls.h"

namespace aerie::http {
namespace asio = boost::asio;
using asio::ip::tcp;

namespace {
constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
}

struct Stream::Tls {
    asio::ssl::stream<tcp::socket&> stream;
};

Stream::Stream(tcp::socket socket, TlsContext* tls) : socket_(std::move(socket)) {
    if (tls) tls_ = std::unique_ptr<Tls>(new Tls{{socket_, tls->get()}});
}

Stream::~Stream() = default;

asio::awaitable<Stream::Error> Stream::handshake() {
    if (!tls_) co_return Error{};
    auto [error] = co_await tls_->stream.async_handshake(asio::ssl::stream_base::server, kNoThrow);
    co_return error;
}

asio::awaitable<Stream::Moved> Stream::read_some(asio::mutable_buffer into) {
    if (tls_) return tls_->stream.async_read_some(into, kNoThrow);
    return socket_.async_read_some(into, kNoThrow);
}

asio::awaitable<Stream::Moved> Stream::write_some(asio::const_buffer from) {
    if (tls_) return tls_->stream.async_write_some(from, kNoThrow);
    return socket_.async_write_some(from, kNoThrow);
}

asio::awaitable<Stream::Error> Stream::wait_lost() {
    auto [error] = co_await socket_.async_wait(tcp::socket::wait_error, kNoThrow);
    co_return error;
}

asio::awaitable<Stream::Error> Stream::end_output() {
    Error error;
    if (tls_) {
        std::tie(error) = co_await tls_->stream.async_shutdown(kNoThrow);
    } else {
        socket_.shutdown(tcp::socket::shutdown_send, error);
    }
    co_return error;
}

void Stream::close() {
    Error ignored;
    socket_.close(ignored);
}

}  // namespace aerie::http
