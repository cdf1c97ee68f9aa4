// A session: one host's connection to the hub, as each side sees it. Two transports exist: gRPC
// (grpc_transport.h) between processes, and local_uplink() within one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"

namespace aerie::proto {
class FromHost;
class ToHost;
}  // namespace aerie::proto

namespace aerie::control {

// The hub's way to a host. Any thread; neither call waits for the host.
class Downlink {
  public:
    virtual ~Downlink() = default;
    // Messages arrive in order while the session lives; later they are dropped.
    virtual void send(const proto::ToHost& message) = 0;
    // Ends the session at once. The transport answers with SessionSink::closed().
    virtual void cancel() = 0;
};

// What a transport tells the hub. Any thread; the calls for one session do not overlap, and nothing
// comes after closed().
class SessionSink {
  public:
    // Returns the session's number. shared_ptr: the transport uses it as long as the host lives,
    // the hub as long as it may send.
    virtual uint64_t opened(std::shared_ptr<Downlink> downlink) = 0;
    virtual void received(uint64_t session, proto::FromHost message) = 0;
    // `why` in words for the log.
    virtual void closed(uint64_t session, const std::string& why) = 0;

  protected:
    ~SessionSink() = default;
};

// A host's way to the hub.
class Uplink {
  public:
    virtual ~Uplink() = default;
    // Any thread; does not wait.
    virtual void send(proto::FromHost message) = 0;
    // One thread. Nothing: the deadline has passed, or the session has ended.
    virtual std::optional<proto::ToHost> receive(TimePoint deadline) = 0;
    // The session is over and everything has been received.
    virtual bool ended() const = 0;
    // What was sent before is delivered, for at most a second; then the session ends.
    virtual void close() = 0;
};

// A session within the process; `hub` must outlive it.
std::unique_ptr<Uplink> local_uplink(SessionSink& hub);

}  // namespace aerie::control
