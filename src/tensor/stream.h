// Stream: what an operation runs on. On the CPU an operation is complete when its call returns, and
// its work is shared with the pool. One stream belongs to one rank thread.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"

namespace aerie {

enum class Device : uint8_t { kCpu, kCuda };

class Stream {
  public:
    // pool may be null: the calling thread then does everything. It must outlive the stream.
    explicit Stream(ThreadPool* pool = nullptr) : pool_(pool) {}

    Device device() const { return device_; }
    int num_threads() const { return pool_ == nullptr ? 1 : pool_->num_workers() + 1; }

    // Calls fn(i) once for each i in [0, n), on this thread and the pool's.
    template <typename Fn>
    void parallel_for(int64_t n, Fn&& fn) {
        if (pool_ == nullptr || n <= 1) {
            for (int64_t i = 0; i < n; ++i) fn(i);
        } else {
            pool_->parallel_for(n, fn);
        }
    }

  private:
    Device device_ = Device::kCpu;
    ThreadPool* pool_ = nullptr;
};

}  // namespace aerie
