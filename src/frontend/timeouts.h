// Timeouts: calls functions when their time has come, on a thread of its own.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/clock.h"

namespace aerie::frontend {

class Timeouts {
  public:
    Timeouts();
    ~Timeouts();  // what is not due is never called

    // Any thread. `action` must not block.
    void add(TimePoint when, std::function<void()> action);

  private:
    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::multimap<TimePoint, std::function<void()>> actions_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace aerie::frontend
