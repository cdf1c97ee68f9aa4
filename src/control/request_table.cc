#include "control/request_table.h"

namespace aerie::control {

bool RequestTable::add(const RunningRequest& request) {
    return running_.emplace(request.id, request).second;
}

RunningRequest* RequestTable::find(RequestId id) {
    const auto it = running_.find(id);
    return it == running_.end() ? nullptr : &it->second;
}

void RequestTable::erase(RequestId id) { running_.erase(id); }

std::vector<RunningRequest> RequestTable::take_dependent(int node) {
    std::vector<RunningRequest> taken;
    std::erase_if(running_, [&](const auto& entry) {
        if (!entry.second.depends_on(node)) return false;
        taken.push_back(entry.second);
        return true;
    });
    return taken;
}

std::vector<RunningRequest> RequestTable::take_all() {
    std::vector<RunningRequest> taken;
    for (const auto& [id, request] : running_) taken.push_back(request);
    running_.clear();
    return taken;
}

}  // namespace aerie::control
