// The bytes of a connection, plain or through TLS.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <tuple>

namespace aerie::http {

class TlsContext;

// All on the strand of its socket. One read and one write may be under way at a time.
class Stream {
  public:
    template <typename T>
    using Awaitable = boost::asio::awaitable<T>;
    using Error = boost::system::error_code;
    using Moved = std::tuple<Error, size_t>;  // bytes

    // `tls`, which may be null, outlives this.
    Stream(boost::asio::ip::tcp::socket socket, TlsContext* tls);
    ~Stream();

    Awaitable<Error> handshake();  // at once where there is no TLS
    // The error is eof where the peer has ended its side in order, and something else where it is
    // lost.
    Awaitable<Moved> read_some(boost::asio::mutable_buffer into);
    Awaitable<Moved> write_some(boost::asio::const_buffer from);
    Awaitable<Error> wait_lost();  // until the connection is reset or closed
    // The peer may still send, and what it sends can be read.
    Awaitable<Error> end_output();

    bool is_tls() const { return tls_ != nullptr; }
    bool is_open() const { return socket_.is_open(); }
    void close();
    auto executor() { return socket_.get_executor(); }

  private:
    struct Tls;
    boost::asio::ip::tcp::socket socket_;
    std::unique_ptr<Tls> tls_;  // uses socket_
};

}  // namespace aerie::http
