// EngineClient: what the frontend sees of the engine. Implemented by control/'s hub, over gRPC or
// within the process, and by a fake in tests.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "request/request.h"

namespace aerie::control {

struct ReplicaState {
    int replica;  // number among its role's replicas
    int node;
    bool live;
    uint32_t epoch = 0;  // of its host's life, the newest known
};

struct EngineState {
    std::vector<ReplicaState> prefill;  // unified replicas stand in both lists
    std::vector<ReplicaState> decode;
    bool unified = false;               // prefill and decode replicas are the same
    std::vector<bool> expert_copy_complete;
    bool stopping = false;
    // There is a live P, a live D and one complete expert copy, and it is not stopping.
    bool healthy() const;
    std::string why_unhealthy() const;  // for the log and the 503 body
};

class EngineClient {
  public:
    virtual ~EngineClient() = default;

    // Hands a request to its prefill and decode leaders. Any thread. The error says which host is
    // down; then no token comes. Otherwise exactly one TokenOut with a finish reason comes last,
    // also when a host dies (kAbort with the reason).
    virtual Status add(const Request& request) = 0;
    // The client has gone. Idempotent; no TokenOut comes for it once this returns… but one that is
    // under way to the sink may still be delivered.
    virtual void abort(RequestId id) = 0;

    // Receives all tokens, on one thread of the client; set before the first add().
    virtual void set_sink(std::function<void(std::vector<TokenOut>)> sink) = 0;

    virtual EngineState state() const = 0;

    // The metrics of all hosts merged, as Prometheus text; at most limit_s seconds are waited for a
    // host, then it is left out. Blocks: not for an I/O thread.
    virtual std::string collect_metrics(double limit_s) = 0;

    // Every attention replica forgets its cached prefixes. The error says which does not: requests
    // run there, or its host has not answered within limit_s seconds. Blocks as above.
    virtual Status flush_cache(double limit_s) = 0;
};

}  // namespace aerie::control
