// The two interfaces between a host's ranks and its link to the launcher.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "metrics/snapshot.h"
#include "request/request.h"

namespace aerie::control {

// Where a host's ranks hand their tokens to. Any thread; does not wait.
class TokenSink {
  public:
    virtual void emit(std::vector<TokenOut> tokens) = 0;
    // An attention replica's answer to HostRuntime::flush_cache(). `why`: it is not flushed.
    virtual void flushed(uint64_t query, const std::string& why) = 0;

  protected:
    ~TokenSink() = default;
};

// A host: the ranks of one node. Called on the link's thread, one call at a time; no call may wait
// for a peer, or the host's heartbeats stop.
class HostRuntime {
  public:
    virtual ~HostRuntime() = default;

    // For the leaders that the request names and that live here. A request that cannot be taken is
    // answered by a token with kAbort.
    virtual void add(const Request& request) = 0;
    // No token of it may be emitted any more once the leader has seen this; unknown ids are ignored.
    virtual void abort(RequestId id) = 0;
    // Every attention replica forgets its cached prefixes once no request is known to it, and
    // answers, at most a second or so later, with TokenSink::flushed().
    virtual void flush_cache(uint64_t query) = 0;
    // The fabric's peers have changed. On the thread that has connected or dropped them.
    virtual void peers_changed() = 0;
    // What has been counted so far.
    virtual metrics::Snapshot metrics() = 0;
    // For each rank of this host, attention ranks first: seconds since it last went round its loop.
    virtual std::vector<double> rank_idle_seconds() = 0;
    // Ends the ranks' threads; returns when they have ended. Not on the link's thread, which may still
    // call the others; they then change nothing.
    virtual void stop() = 0;
};

}  // namespace aerie::control
