// Inbox: what comes to a replica's leader from outside, in order. Any thread
// puts, the leader takes. Its event also wakes the leader for other news (transfer, stop).
#pragma once

#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "base/thread.h"
#include "request/request.h"

namespace aerie::engine {

struct AbortRequest {
    RequestId id;
};
// Forget the cached prefixes, and tell under this number.
struct FlushCache {
    uint64_t query;
};
using Command = std::variant<Request, AbortRequest, FlushCache>;

class Inbox {
  public:
    void put(Command command) {
        {
            std::lock_guard lock(mutex_);
            commands_.push_back(std::move(command));
        }
        news_.notify();
    }
    std::vector<Command> take() {
        std::lock_guard lock(mutex_);
        return std::exchange(commands_, {});
    }
    Event& news() { return news_; }

  private:
    std::mutex mutex_;
    std::vector<Command> commands_;
    Event news_;
};

}  // namespace aerie::engine
