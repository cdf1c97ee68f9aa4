// Courier: the thread of one side of the KV transfer. Receivers of the fabric may neither send nor
// wait; what they find is handled here, and so is what the clock brings.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "base/thread.h"

namespace aerie::transfer {

class Courier {
  public:
    // work() does what is due and returns when it wants to be called again at the latest.
    Courier(const std::string& name, std::function<TimePoint()> work)
        : thread_([this, name, work = std::move(work)] {
              set_thread_name(name);
              while (!stopping_) {
                  const uint64_t seen = event_.value();
                  event_.wait(seen, work());
              }
          }) {}
    ~Courier() { stop(); }

    void wake() { event_.notify(); }  // any thread
    void stop() {                     // returns when work() does not run and will not
        stopping_ = true;
        wake();
        if (thread_.joinable()) thread_.join();
    }

  private:
    std::atomic<bool> stopping_{false};
    Event event_;
    std::thread thread_;  // last: uses the others
};

}  // namespace aerie::transfer
