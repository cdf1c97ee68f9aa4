// Keys: who may call what.
#pragma once

#include <string>

#include "frontend/frontend.h"
#include "frontend/routes.h"
#include "http/message.h"

namespace aerie::frontend {

// api_key opens the normal routes; admin_api_key opens all. Without admin_api_key, api_key opens the
// admin routes too; a route for which no key is set is open.
class Keys {
  public:
    explicit Keys(const FrontendOptions& options)
        : api_key_(options.api_key), admin_api_key_(options.admin_api_key) {}

    // Takes the same time for any wrong key of the right length.
    bool allow(Auth auth, const http::Request& request) const;

  private:
    std::string api_key_, admin_api_key_;
};

}  // namespace aerie::frontend
