// What a handler gets and gives: a request, and a Responder to answer it with. Bytes only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace aerie::http {

struct Header {
    std::string name, value;
};
using Headers = std::vector<Header>;

struct Request {
    std::string method;  // as sent: "GET", "POST", "HEAD", …
    std::string path;    // percent-decoded, without the query
    std::string query;   // what follows '?', as sent; empty where there is none
    Headers headers;     // in the order sent
    std::string body;    // whole, chunked framing taken off

    // The value of the first header of that name, whatever its case; empty where there is none.
    std::string_view header(std::string_view name) const;
};

class Exchange;

// Answers one request: send() once, or start_stream(), any number of write()s and finish(). A handle
// that is cheap to copy; every member may be called on any thread and never blocks. It may outlive
// the connection and the server: calls then do nothing.
//
// Where the last copy goes away without an answer, the client gets a 500; in the middle of a stream
// its connection is cut, so that it does not take the part for the whole.
class Responder {
  public:
    explicit Responder(std::shared_ptr<Exchange> exchange);

    void send(int status, std::string_view content_type, std::string body, Headers headers = {});

    void start_stream(int status, std::string_view content_type, Headers headers = {});
    // False where the client has gone, or reads so slowly that it was cut off.
    bool write(std::string_view bytes);
    void finish();

    // `callback` is called at most once, when the client goes away before the answer is finished:
    // on an I/O thread, or here where it has gone already. It must not block, and must not own a
    // copy of this Responder (which would keep itself alive): let it hold a weak_ptr.
    void on_disconnect(std::function<void()> callback);

  private:
    struct Owner;  // its end is the end of the last copy
    std::shared_ptr<Owner> owner_;
};

}  // namespace aerie::http
