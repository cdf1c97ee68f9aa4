// The request target of HTTP/1.1.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace aerie::http {

struct Target {
    std::string path;   // percent-decoded
    std::string query;  // as sent
};

// "/v1/models/a%2Fb?x=1" or the absolute form "http://host/path".
Result<Target> parse_target(std::string_view target);

}  // namespace aerie::http
