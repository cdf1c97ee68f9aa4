// HostLink: the host side of the control plane. Joins the hub, says how far the host has come, sends
// heartbeats and tokens, and hands requests, aborts and news of peers to their owners.
//
// One thread of its own handles what the hub sends and the heartbeats. Order of a host's life:
// start() → loaded() → peers come and are connected → requests come → wait_end().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "control/host_runtime.h"
#include "control/session.h"

namespace aerie::control {

struct HostIdentity {
    int node = 0;
    uint32_t epoch = 1;
    std::string version;
    uint64_t config_fingerprint = 0;
    uint64_t model_fingerprint = 0;
    std::string fabric_address;  // bytes that peers need to connect; opaque here
};

struct Peer {
    int node;
    uint32_t epoch;  // 0: down
    std::string fabric_address;
    uint32_t dead_epoch;  // of one that is down: its newest life that is known to be dead; 0: none
};

// A life of a peer from which a first message has come.
struct ReachedPeer {
    int node;
    uint32_t epoch;
    bool operator==(const ReachedPeer&) const = default;
};

// Connects and drops peers. Called on the link's thread with all nodes that this host exchanges
// messages with; must not wait for them.
class PeerListener {
  public:
    virtual void peers(const std::vector<Peer>& peers) = 0;

  protected:
    ~PeerListener() = default;
};

enum class SessionEnd {
    kNone,      // it lasts
    kShutdown,  // the launcher said so
    kRefused,   // `why` names what differs
    kLost,      // the launcher is gone
};

class HostLink final : public TokenSink {
  public:
    HostLink(HostIdentity identity, std::unique_ptr<Uplink> uplink);
    ~HostLink();  // ends the session

    // Joins. The listener must live until stop().
    void start(PeerListener& peers);
    // The weights are loaded and the ranks run; requests may come from now on, until stop().
    void loaded(HostRuntime& runtime);

    // Any thread, as are the next two. Tells the runtime that peers have changed.
    void report_reached(std::vector<ReachedPeer> reached);
    // A rank cannot go on: the launcher ends this host and starts it again.
    void report_failed(const std::string& rank, const std::string& why);
    void emit(std::vector<TokenOut> tokens) override;
    void flushed(uint64_t query, const std::string& why) override;

    struct End {
        SessionEnd how = SessionEnd::kNone;
        std::string why;
    };
    // Waits until the session has ended, or until the deadline (then kNone).
    End wait_end(TimePoint deadline) const;

    // Ends the thread and the session; neither the listener nor the runtime is called afterwards.
    void stop();

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace aerie::control
