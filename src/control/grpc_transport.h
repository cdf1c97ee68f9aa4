// Sessions between processes, over gRPC (proto/control.proto). Plain text without authentication:
// the address listened on is this machine's loopback, or the cluster's private network, which is
// trusted. mutual TLS is not built.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "control/session.h"

namespace aerie::control {

// Listens for hosts. Each session has one thread that reads and one that writes.
class ControlServer {
  public:
    virtual ~ControlServer() = default;  // cancels the sessions; the hub hears nothing afterwards
    virtual int port() const = 0;
};

// `address`: "127.0.0.1:0" takes any free port. `hub` must outlive the server.
Result<std::unique_ptr<ControlServer>> listen_for_hosts(const std::string& address,
                                                        SessionSink& hub);

// A host's session with the hub at "host:port". Waits for the connection, at most limit_s seconds.
Result<std::unique_ptr<Uplink>> connect_to_hub(const std::string& address, double limit_s);

}  // namespace aerie::control
