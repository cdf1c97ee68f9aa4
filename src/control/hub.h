// Hub: the launcher side of the control plane, and the engine as the frontend sees it. Accepts the
// hosts' sessions, tells each host of its peers, routes requests to the hosts of their leaders and
// tokens back to the sink, and ends the requests of a host that dies.
//
// One thread of its own handles what hosts say and calls the sink; all other calls may come from any
// thread and, where they do not say so, do not wait.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/placement.h"
#include "control/engine_client.h"
#include "control/membership.h"
#include "control/session.h"
#include "metrics/registry.h"

namespace aerie::control {

struct HubOptions {
    BuildIdentity identity;
    std::vector<std::string> addresses;  // [node], for messages: where the node is expected
    // The launcher's own metrics, part of collect_metrics(); outlives the hub. The hub adds its.
    metrics::Registry* registry = nullptr;
    // A host that is silent for longer is dead, seconds. Far above the heartbeat's 0.5 s, so that
    // a machine with many more ranks than cores does not look dead.
    double heartbeat_timeout_s = 15;
    double watchdog_timeout_s = 300;  // a rank that does not go round its loop for longer is stuck
};

class Hub final : public EngineClient, public SessionSink {
  public:
    Hub(const Placement& placement, HubOptions options);
    ~Hub();  // every transport must have ended before

    // EngineClient. An added request is known until its last token has gone to the sink.
    Status add(const Request& request) override;
    void abort(RequestId id) override;
    // The old sink is not called once this returns; not to be called by a sink.
    void set_sink(std::function<void(std::vector<TokenOut>)> sink) override;
    EngineState state() const override;
    std::string collect_metrics(double limit_s) override;
    Status flush_cache(double limit_s) override;

    // SessionSink, for the transports.
    uint64_t opened(std::shared_ptr<Downlink> downlink) override;
    void received(uint64_t session, proto::FromHost message) override;
    void closed(uint64_t session, const std::string& why) override;

    // Called, on the hub's thread, when a host is found stuck or its connection is lost: its process
    // should be ended if it still runs. Set before the first session.
    void on_lost(std::function<void(int node, uint32_t epoch, const std::string& why)> listener);
    // The process of a host has ended (`why`: how), as its supervisor has seen it.
    void host_died(int node, uint32_t epoch, const std::string& why);
    // Ends a wait_started() that has begun or will: the start cannot succeed.
    void fail_start(const std::string& why);

    // Waits until every host is live. The error names what is missing, where it was expected, and
    // for how long: all must have joined join_limit_s seconds after the call, loaded their weights
    // load_limit_s after that, and reached each other join_limit_s after that.
    Status wait_started(double join_limit_s, double load_limit_s);
    // "node-1 (decode)"
    std::string label(int node) const;

    // The stop, in this order. New requests are refused from the first call on.
    void stop_accepting();
    // Waits until no request runs; false when the limit has passed before.
    bool drain(double limit_s);
    // Ends the requests that still run, with kAbort and the reason.
    void abort_all(const std::string& why);
    // Tells the hosts to end, those with attention first, and waits for their sessions to close; at
    // most limit_s seconds for each of the two groups. Their death is expected from now on.
    void shut_down_hosts(double limit_s);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace aerie::control
