// An HTTP/1.1 server, plain or through TLS: sockets, framing, limits. It knows bytes, not models.
//
// Keep-alive, pipelining (answered one after the other, in order), Expect: 100-continue, chunked
// request bodies, chunked responses, HEAD, CORS for every origin. A client that closes its
// connection, or its sending half of it, is seen as gone at once, whether or not it ever sends
// again; only behind more pipelined bytes than max_pipelined_bytes is it seen at the next write.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/message.h"

namespace aerie::http {

struct TlsOptions {
    std::string certfile = {}, keyfile = {};  // PEM; empty: plain HTTP
    std::string keyfile_password = {};        // empty: the key is not encrypted
    // PEM; not empty: clients must have a certificate of one of these.
    std::string ca_certs = {};
};

// What a client is refused for names the setting that holds the limit (config/http_limits.h).
struct ServerOptions {
    std::string host = "127.0.0.1";  // an address or a name
    int port = 0;                    // 0: any free one
    int io_threads = 1;
    TlsOptions tls = {};

    int max_connections = 4096;                // beyond: 503, closed
    size_t max_header_bytes = 64 << 10;        // beyond: 431, closed
    size_t max_url_bytes = 16 << 10;           // beyond: 414, closed
    int max_headers = 128;                     // beyond: 431, closed
    size_t max_body_bytes = size_t{64} << 20;  // beyond: 413, closed
    size_t max_pipelined_bytes = 64 << 10;     // beyond: not read until the answer is out
    size_t max_unsent_bytes = 4 << 20;         // of a stream; beyond: cut off

    double idle_timeout_s = 75;    // between two requests: closed
    double header_timeout_s = 15;  // from the first byte to the end of the headers: 408, closed;
                                   // of a TLS handshake: closed
    double body_timeout_s = 120;   // for the whole body: 408, closed
    double write_timeout_s = 30;   // without the client taking a byte: cut off
};

// Runs on an I/O thread: it must not block, and hands what takes long to another thread.
using Handler = std::function<void(Request request, Responder responder)>;

// The body and content type of an answer that the server gives without asking the handler.
struct ErrorBody {
    std::string content_type, body;
};
using ErrorFormat = std::function<ErrorBody(int status, std::string_view path,
                                            const std::string& message)>;

class Server {
  public:
    // Listens and serves until stop(). The error names the address and why it cannot be had, or the
    // file of TLS that cannot be used.
    static Result<std::unique_ptr<Server>> start(const ServerOptions& options, Handler handler,
                                                 ErrorFormat error_format);
    ~Server();  // stop(0)
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    int port() const;
    int num_connections() const;

    // Accepts nothing more, closes idle connections, lets running requests finish for at most
    // `limit_s` seconds, then cuts off what is left. Blocks; not for an I/O thread. Idempotent.
    void stop(double limit_s);

  private:
    struct Impl;
    explicit Server(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace aerie::http
