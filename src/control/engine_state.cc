#include <algorithm>

#include "control/engine_client.h"

namespace aerie::control {
namespace {

bool any_live(const std::vector<ReplicaState>& replicas) {
    return std::any_of(replicas.begin(), replicas.end(), [](const auto& r) { return r.live; });
}

std::string down(const char* role, const std::vector<ReplicaState>& replicas) {
    std::string text = fmt::format("no live {} replica:", role);
    for (const ReplicaState& replica : replicas) {
        text += fmt::format(" {} on node-{} is down", replica.replica, replica.node);
    }
    return text;
}

}  // namespace

bool EngineState::healthy() const { return why_unhealthy().empty(); }

std::string EngineState::why_unhealthy() const {
    if (stopping) return "the server is stopping";
    if (!any_live(prefill)) return down(unified ? "attention" : "prefill", prefill);
    if (!any_live(decode)) return down("decode", decode);
    if (std::find(expert_copy_complete.begin(), expert_copy_complete.end(), true) ==
        expert_copy_complete.end()) {
        return "no complete expert copy: a host of each is down";
    }
    return "";
}

}  // namespace aerie::control
