#include "http/response_head.h"

#include <fmt/core.h>

#include <ctime>

#include <boost/beast/http/status.hpp>

namespace aerie::http {
namespace {

std::string reason_of(int status) {
    const auto text = boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(status));
    return std::string(text.data(), text.size());
}

// RFC 9110, section 5.6.7. Not strftime's %a and %b: those follow the locale.
std::string http_date(std::time_t now) {
    static const char* const kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char* const kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                          "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    std::tm t{};
    gmtime_r(&now, &t);
    return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[t.tm_wday], t.tm_mday,
                       kMonths[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

// A value that came from outside must not be able to end its line.
std::string one_line(std::string text) {
    for (char& c : text) {
        if (c == '\r' || c == '\n' || c == '\0') c = ' ';
    }
    return text;
}

}  // namespace

std::string format_head(const ResponseHead& head) {
    std::string text = fmt::format(
        "HTTP/1.1 {} {}\r\nDate: {}\r\nServer: aerie\r\nAccess-Control-Allow-Origin: *\r\n",
        head.status, reason_of(head.status), http_date(std::time(nullptr)));
    if (!head.content_type.empty()) text += fmt::format("Content-Type: {}\r\n", head.content_type);
    if (head.headers) {
        for (const Header& header : *head.headers) {
            text += one_line(header.name) + ": " + one_line(header.value) + "\r\n";
        }
    }
    if (head.content_length) {
        text += fmt::format("Content-Length: {}\r\n", *head.content_length);
    } else if (head.chunked) {
        text += "Transfer-Encoding: chunked\r\n";
    }
    text += head.keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
    return text;
}

std::string format_chunk(std::string_view bytes) {
    std::string chunk = fmt::format("{:x}\r\n", bytes.size());
    chunk.append(bytes);
    chunk += "\r\n";
    return chunk;
}

}  // namespace aerie::http
