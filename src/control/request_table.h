// RequestTable: the requests that run, and the nodes that each depends on. Bookkeeping only; the hub
// holds its lock around every call.
//
// A request depends on its decode node to its end, and on its prefill node until its first token has
// come: then its KV is on the decode side.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "request/request.h"

namespace aerie::control {

struct RunningRequest {
    RequestId id;
    int prefill_node, decode_node;  // equal where one node does both
    bool prefilled = false;

    bool runs_on(int node) const { return node == prefill_node || node == decode_node; }
    bool depends_on(int node) const {
        return node == decode_node || (node == prefill_node && !prefilled);
    }
};

class RequestTable {
  public:
    // False: the id runs already.
    bool add(const RunningRequest& request);
    // Null: not running. Valid until the next change.
    RunningRequest* find(RequestId id);
    void erase(RequestId id);
    // Removes and returns those that depend on the node.
    std::vector<RunningRequest> take_dependent(int node);
    std::vector<RunningRequest> take_all();
    size_t size() const { return running_.size(); }

  private:
    std::unordered_map<RequestId, RunningRequest> running_;
};

}  // namespace aerie::control
