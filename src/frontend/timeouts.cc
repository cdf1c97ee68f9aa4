#include "frontend/timeouts.h"

#include <utility>

#include "base/thread.h"

namespace aerie::frontend {

Timeouts::Timeouts() : thread_([this] { run(); }) {}

Timeouts::~Timeouts() {
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Timeouts::add(TimePoint when, std::function<void()> action) {
    {
        std::lock_guard lock(mutex_);
        actions_.emplace(when, std::move(action));
    }
    changed_.notify_all();
}

void Timeouts::run() {
    set_thread_name("timeouts");
    std::unique_lock lock(mutex_);
    while (!stopping_) {
        if (actions_.empty()) {
            changed_.wait(lock);
        } else if (actions_.begin()->first > Clock::now()) {
            changed_.wait_until(lock, actions_.begin()->first);
        } else {
            auto action = actions_.extract(actions_.begin());
            lock.unlock();
            action.mapped()();
            lock.lock();
        }
    }
}

}  // namespace aerie::frontend
