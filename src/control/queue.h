// Queue: what one thread hands to another, in order, without ever making the giver wait.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace aerie::control {

// Any thread. Unbounded: what goes through it is small, and bounded by the requests that run.
template <typename T>
class Queue {
  public:
    // Dropped once the queue is closed.
    void push(T item) {
        {
            std::lock_guard lock(mutex_);
            if (closed_) return;
            items_.push_back(std::move(item));
        }
        changed_.notify_one();
    }

    // The next item, or nothing when the deadline has passed, or the queue is closed and empty.
    std::optional<T> pop(TimePoint deadline) {
        std::unique_lock lock(mutex_);
        changed_.wait_until(lock, deadline, [&] { return closed_ || !items_.empty(); });
        if (items_.empty()) return std::nullopt;
        std::optional<T> item(std::move(items_.front()));
        items_.pop_front();
        return item;
    }

    // Nothing more is taken in; what is in it can still be popped.
    void close() {
        {
            std::lock_guard lock(mutex_);
            closed_ = true;
        }
        changed_.notify_all();
    }

    // Closed and empty: pop() will never give anything again.
    bool finished() const {
        std::lock_guard lock(mutex_);
        return closed_ && items_.empty();
    }

  private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<T> items_;
    bool closed_ = false;
};

}  // namespace aerie::control
