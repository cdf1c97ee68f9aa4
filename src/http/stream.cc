#include "http/stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>

#include "http/tls.h"

namespace aerie::http {
namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
constexpr size_t kRecordBytes = 16 << 10;  // what one call of OpenSSL's moves at the most

// OpenSSL's own BIO of a socket, but that a peer that has gone is an error and no SIGPIPE.
int write_socket(BIO* bio, const char* bytes, int size) {
    auto& socket = *static_cast<tcp::socket*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    const ssize_t sent =
        send(socket.native_handle(), bytes, static_cast<size_t>(size), MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
    return static_cast<int>(sent);
}

int read_socket(BIO* bio, char* into, int size) {
    auto& socket = *static_cast<tcp::socket*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    const ssize_t got = recv(socket.native_handle(), into, static_cast<size_t>(size), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
    if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    return static_cast<int>(got);
}

long control_socket(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// Null where there is no memory.
BIO* make_bio(tcp::socket& socket) {
    static BIO_METHOD* const method = [] {
        BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tcp::socket");
        BIO_meth_set_write(made, write_socket);
        BIO_meth_set_read(made, read_socket);
        BIO_meth_set_ctrl(made, control_socket);
        return made;
    }();
    BIO* const bio = BIO_new(method);
    if (bio == nullptr) return nullptr;
    BIO_set_data(bio, &socket);
    BIO_set_init(bio, 1);
    return bio;
}

}  // namespace

// OpenSSL on the socket itself: Asio's stream would keep four buffers of a record's size beside it
// for as long as the connection lasts. What OpenSSL needs for a record it lets go when that is done
// (SSL_MODE_RELEASE_BUFFERS).
struct Stream::Tls {
    Tls(tcp::socket& socket, SSL_CTX* context) : socket(socket), ssl(SSL_new(context)) {
        BIO* const bio = ssl == nullptr ? nullptr : make_bio(socket);
        if (bio == nullptr) return;
        is_made = true;
        SSL_set_bio(ssl, bio, bio);
        SSL_set_accept_state(ssl);
        Error ignored;
        socket.native_non_blocking(true, ignored);
    }
    ~Tls() { SSL_free(ssl); }
    Tls(const Tls&) = delete;
    Tls& operator=(const Tls&) = delete;

    // Calls `step` until it returns more than 0, which is the second of the result, or fails.
    template <typename Step>
    Awaitable<Moved> run(Step step);
    // What has ended a step for good.
    Error failure(int reason) const;

    tcp::socket& socket;
    SSL* const ssl;
    bool is_made = false;  // false: there was no memory, the handshake fails
};

template <typename Step>
asio::awaitable<Stream::Moved> Stream::Tls::run(Step step) {
    // Never within the caller's own turn, whatever has come already: it may hold a lock, and the
    // other connections of this thread have theirs.
    co_await asio::post(socket.get_executor(), kNoThrow);
    while (socket.is_open()) {
        ERR_clear_error();
        errno = 0;
        const int moved = step();
        if (moved > 0) co_return Moved{Error{}, static_cast<size_t>(moved)};
        const int reason = SSL_get_error(ssl, moved);
        if (reason != SSL_ERROR_WANT_READ && reason != SSL_ERROR_WANT_WRITE) {
            co_return Moved{failure(reason), 0};
        }
        auto [error] = co_await socket.async_wait(
            reason == SSL_ERROR_WANT_READ ? tcp::socket::wait_read : tcp::socket::wait_write,
            kNoThrow);
        if (error) co_return Moved{error, 0};
    }
    co_return Moved{asio::error::make_error_code(asio::error::bad_descriptor), 0};
}

Stream::Error Stream::Tls::failure(int reason) const {
    if (reason == SSL_ERROR_ZERO_RETURN) return asio::error::make_error_code(asio::error::eof);
    if (reason == SSL_ERROR_SYSCALL && errno != 0) return {errno, boost::system::system_category()};
    const unsigned long code = ERR_get_error();
    if (code == 0 || ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        return asio::ssl::error::make_error_code(asio::ssl::error::stream_truncated);
    }
    return {static_cast<int>(code), asio::error::get_ssl_category()};
}

Stream::Stream(tcp::socket socket, TlsContext* tls) : socket_(std::move(socket)) {
    if (tls) tls_ = std::make_unique<Tls>(socket_, tls->get().native_handle());
}

Stream::~Stream() = default;

asio::awaitable<Stream::Error> Stream::handshake() {
    if (!tls_) co_return Error{};
    if (!tls_->is_made) co_return asio::error::make_error_code(asio::error::no_memory);
    const auto [error, unused] = co_await tls_->run([this] { return SSL_do_handshake(tls_->ssl); });
    co_return error;
}

asio::awaitable<Stream::Moved> Stream::read_some(asio::mutable_buffer into) {
    if (!tls_) return socket_.async_read_some(into, kNoThrow);
    return tls_->run([this, into] {
        return SSL_read(tls_->ssl, into.data(),
                        static_cast<int>(std::min(into.size(), kRecordBytes)));
    });
}

asio::awaitable<Stream::Moved> Stream::write_some(asio::const_buffer from) {
    if (!tls_) return socket_.async_write_some(from, kNoThrow);
    return tls_->run([this, from] {
        return SSL_write(tls_->ssl, from.data(),
                         static_cast<int>(std::min(from.size(), kRecordBytes)));
    });
}

asio::awaitable<Stream::Error> Stream::wait_lost() {
    auto [error] = co_await socket_.async_wait(tcp::socket::wait_error, kNoThrow);
    co_return error;
}

asio::awaitable<Stream::Error> Stream::end_output() {
    Error error;
    if (!tls_) {
        socket_.shutdown(tcp::socket::shutdown_send, error);
        co_return error;
    }
    std::tie(error, std::ignore) = co_await tls_->run([this] {
        // Not again after 0, which is that the peer's end is still to come: it would read, and data
        // that comes before that end is an error to it.
        const int ended = SSL_shutdown(tls_->ssl);
        return ended == 0 ? 1 : ended;
    });
    co_return error;
}

void Stream::close() {
    Error ignored;
    socket_.close(ignored);
}

}  // namespace aerie::http
