// The inside of the hub; included by hub*.cc only.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <variant>

#include "control/hub.h"
#include "control/queue.h"
#include "control/request_table.h"
#include "metrics/components.h"
#include "proto/control.pb.h"

namespace aerie::control {

class Hub::Impl {
  public:
    Impl(const Placement& placement, HubOptions options);
    ~Impl();

    // As in hub.h.
    Status add(const Request& request);
    void abort(RequestId id);
    EngineState state() const;
    std::string collect_metrics(double limit_s);
    Status flush_cache(double limit_s);
    uint64_t opened(std::shared_ptr<Downlink> downlink);
    Status wait_started(double join_limit_s, double load_limit_s);
    void fail_start(const std::string& why);
    void stop_accepting();
    bool drain(double limit_s);
    void shut_down_hosts(double limit_s);

    // What the hub's thread handles, in the order of arrival.
    struct Message {
        uint64_t session;
        proto::FromHost body;
    };
    struct Closed {
        uint64_t session;
        std::string why;
    };
    struct Died {
        int node;
        uint32_t epoch;
        std::string why;
    };
    struct AbortAll {
        std::string why;
    };
    using Event = std::variant<Message, Closed, Died, AbortAll>;
    Queue<Event> events;

    std::mutex sink_mutex;  // held while the sink runs
    std::function<void(std::vector<TokenOut>)> sink;
    std::function<void(int, uint32_t, const std::string&)> lost_listener;
    const std::string& label(int node) const { return membership_.label(node); }

  private:
    struct Session {
        std::shared_ptr<Downlink> downlink;  // shared with the transport
        TimePoint opened_at = Clock::now();
        TimePoint heard_at = opened_at;
        int node = -1;        // until it has joined
        bool refused = false; // told so; it should end its session itself
    };
    struct LostHost {
        int node;
        uint32_t epoch;
        std::string why;
    };
    struct MetricsQuery {
        std::set<int> pending;  // nodes
        std::vector<metrics::Snapshot> snapshots;
    };

    struct FlushQuery {
        std::map<int, int> pending;  // node → replicas that have not answered
        std::string refusal;         // the first
    };

    void run();
    void handle(Event& event);
    void handle_message(uint64_t session_id, proto::FromHost& message);
    void handle_join(uint64_t session_id, Session& session, const proto::Join& join);
    void handle_ready(int node, const proto::Ready& ready);
    void handle_tokens(int node, const proto::TokenBatch& batch);
    void handle_heartbeat(int node, const proto::Heartbeat& heartbeat);
    void handle_metrics(int node, const proto::MetricsReply& reply);
    void handle_flushed(int node, const proto::FlushReply& reply);
    void make_metrics();
    void show_live();
    void check_silence();
    // The host of a node is gone: its requests end, its peers are told. `kill`: its process may
    // still run.
    void lose(int node, const std::string& why, bool kill);
    void end_requests(const std::vector<RunningRequest>& requests, int lost_node,
                      const std::string& why);
    void broadcast_peers();
    void send(int node, const proto::ToHost& message);
    void send_abort(const RunningRequest& request, int except_node);
    void deliver();
    Result<int> replica_node(const char* role, const std::vector<int>& replicas, int index) const;
    Error start_error(double seconds) const;
    bool wait_sessions_closed(std::unique_lock<std::mutex>& lock, const std::set<int>& nodes,
                              double limit_s);

    const Placement placement_;
    const std::vector<int> prefill_replicas_, decode_replicas_;
    const bool unified_;
    const HubOptions options_;

    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;  // membership, requests, queries, start_failure_
    Membership membership_;
    RequestTable requests_;
    std::unordered_map<uint64_t, Session> sessions_;
    std::map<uint64_t, MetricsQuery> queries_;
    std::map<uint64_t, FlushQuery> flushes_;
    uint64_t next_session_ = 1, next_query_ = 1;
    std::vector<std::vector<metrics::HostMetrics>> host_metrics_;  // [node][role]
    bool stopping_ = false;       // no new requests
    bool shutting_down_ = false;  // hosts are expected to end
    std::string start_failure_;

    // Gathered under the lock, handed over without it. The hub's thread only.
    std::vector<TokenOut> out_;
    std::vector<LostHost> lost_;

    std::thread thread_;
};

}  // namespace aerie::control
