// Workers: a few threads for what takes too long for an I/O thread: JSON, templates, tokenising,
// waiting for metrics.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace aerie::frontend {

class Workers {
  public:
    Workers(int num_threads, size_t max_waiting);
    ~Workers();  // runs what waits, then ends

    // False where max_waiting jobs wait already; the job is then not run. Any thread.
    bool run(std::function<void()> job);

  private:
    void work(int index);

    const size_t max_waiting_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> jobs_;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace aerie::frontend
