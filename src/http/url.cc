#include "http/url.h"

namespace aerie::http {
namespace {

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

}  // namespace

Result<Target> parse_target(std::string_view target) {
    const std::string_view whole = target;
    if (const size_t scheme = target.find("://");
        scheme != std::string_view::npos && !target.starts_with('/')) {
        const size_t path = target.find('/', scheme + 3);
        target = path == std::string_view::npos ? "/" : target.substr(path);
    }
    Target result;
    if (const size_t query = target.find('?'); query != std::string_view::npos) {
        result.query = target.substr(query + 1);
        target = target.substr(0, query);
    }
    for (size_t i = 0; i < target.size(); ++i) {
        if (target[i] != '%') {
            result.path += target[i];
            continue;
        }
        const int high = i + 2 < target.size() ? hex_value(target[i + 1]) : -1;
        const int low = i + 2 < target.size() ? hex_value(target[i + 2]) : -1;
        if (high < 0 || low < 0) {
            return error("the path {} has a % that two hexadecimal digits do not follow", whole);
        }
        result.path += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return result;
}

}  // namespace aerie::http
