#include "frontend/authorize.h"

#include <strings.h>

namespace aerie::frontend {
namespace {

bool equal_in_constant_time(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    unsigned char difference = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
    }
    return difference == 0;
}

std::string_view given_key(const http::Request& request) {
    constexpr std::string_view kBearer = "Bearer ";
    const std::string_view authorization = request.header("Authorization");
    if (authorization.size() > kBearer.size() &&
        strncasecmp(authorization.data(), kBearer.data(), kBearer.size()) == 0) {
        return authorization.substr(kBearer.size());
    }
    return request.header("x-api-key");
}

}  // namespace

bool Keys::allow(Auth auth, const http::Request& request) const {
    if (auth == Auth::kOpen) return true;
    const std::string_view given = given_key(request);
    const bool is_admin = !admin_api_key_.empty() && equal_in_constant_time(given, admin_api_key_);
    const bool is_user = !api_key_.empty() && equal_in_constant_time(given, api_key_);
    if (auth == Auth::kNormal) return api_key_.empty() || is_user || is_admin;
    if (!admin_api_key_.empty()) return is_admin;
    return api_key_.empty() || is_user;
}

}  // namespace aerie::frontend
