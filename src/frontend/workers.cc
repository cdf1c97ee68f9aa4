#include "frontend/workers.h"

#include <fmt/core.h>

#include <utility>

#include "base/thread.h"

namespace aerie::frontend {

Workers::Workers(int num_threads, size_t max_waiting) : max_waiting_(max_waiting) {
    for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this, i] { work(i); });
}

Workers::~Workers() {
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

bool Workers::run(std::function<void()> job) {
    {
        std::lock_guard lock(mutex_);
        if (jobs_.size() >= max_waiting_) return false;
        jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
    return true;
}

void Workers::work(int index) {
    set_thread_name(fmt::format("frontend-{}", index));
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        auto job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        job();
        job = nullptr;  // what it holds ends outside the lock
        lock.lock();
    }
}

}  // namespace aerie::frontend
