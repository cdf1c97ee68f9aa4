// What a client may send down its connection: a server of our own, to whom the input is sent in
// pieces, the first byte their size.
#include <sys/socket.h>

#include "fuzz.h"
#include "http/server.h"
#include "http/testing/test_client.h"

namespace aerie::fuzz {
namespace {

http::Server& server() {
    static http::Server* const started = [] {
        http::ServerOptions options{
            .max_header_bytes = 4096, .max_url_bytes = 512, .max_headers = 32};
        options.max_body_bytes = 8192;
        options.idle_timeout_s = options.header_timeout_s = options.body_timeout_s = 2;
        auto result = http::Server::start(
            options,
            [](const http::Request& request, http::Responder responder) {
                if (request.path == "/stream") {
                    responder.start_stream(200, "text/event-stream", request.headers);
                    responder.write(request.body);
                    return responder.finish();
                }
                responder.send(200, "text/plain",
                               request.method + request.path + request.query + request.body);
            },
            [](int, std::string_view path, const std::string& message) {
                return http::ErrorBody{"text/plain", std::string(path) + message};
            });
        require(result.ok(), "the server starts");
        return (*std::move(result)).release();
    }();
    return *started;
}

}  // namespace
}  // namespace aerie::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace aerie;
    if (size == 0) return 0;
    http::TestClient client(fuzz::server().port());
    fuzz::require(client.connected(), "a client can connect");
    const size_t piece = size_t{1} + data[0] * 16;
    std::string_view rest = fuzz::text_of(data + 1, size - 1);
    while (!rest.empty() && client.send(rest.substr(0, piece)))
        rest.remove_prefix(std::min(piece, rest.size()));
    client.end_sending();
    fuzz::require(client.receive_end(8), "a connection whose client has ended ends");
    const std::string& got = client.received();
    fuzz::require(got.empty() || got.starts_with("HTTP/1.1 "), "what comes first is a status line");
    fuzz::require(!got.starts_with("HTTP/1.1 5"), "no request is an error of the server");
    return 0;
}
