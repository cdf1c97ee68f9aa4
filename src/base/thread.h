// Names for threads, and an event that a thread can sleep on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/clock.h"

namespace aerie {

void set_thread_name(const std::string& name);  // at most 15 bytes are kept

// A counter that grows with each notify(). A waiter remembers the value it saw, looks for work, and
// sleeps until the value has moved on; so no notification is lost between looking and sleeping.
// Any thread.
class Event {
  public:
    uint64_t value() const;
    void notify();
    // Sleeps until the value differs from `seen`, or until `deadline`. Returns the value then.
    uint64_t wait(uint64_t seen, TimePoint deadline) const;

  private:
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    uint64_t value_ = 0;
};

}  // namespace aerie
