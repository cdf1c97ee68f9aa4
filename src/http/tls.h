// The server's side of TLS: certificate, key, and who may call.
#pragma once

#include <memory>

#include "base/result.h"
#include "http/server.h"

namespace boost::asio::ssl {
class context;
}

namespace aerie::http {

// Immutable once loaded; any thread.
class TlsContext {
  public:
    // TLS 1.2 and 1.3. The error names the setting, the file and what is wrong with it.
    static Result<std::unique_ptr<TlsContext>> load(const TlsOptions& options);
    ~TlsContext();

    boost::asio::ssl::context& get() { return *context_; }

  private:
    explicit TlsContext(std::unique_ptr<boost::asio::ssl::context> context);
    std::unique_ptr<boost::asio::ssl::context> context_;
};

}  // namespace aerie::http
