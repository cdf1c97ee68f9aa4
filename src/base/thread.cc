#include "base/thread.h"

#include <pthread.h>

namespace aerie {

void set_thread_name(const std::string& name) {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

uint64_t Event::value() const {
    std::lock_guard lock(mutex_);
    return value_;
}

void Event::notify() {
    {
        std::lock_guard lock(mutex_);
        ++value_;
    }
    changed_.notify_all();
}

uint64_t Event::wait(uint64_t seen, TimePoint deadline) const {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [&] { return value_ != seen; });
    return value_;
}

}  // namespace aerie
