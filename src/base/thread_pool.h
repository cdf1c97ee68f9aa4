// ThreadPool: the threads that the rank threads of a process share for parallel loops. Any number
// of threads may call parallel_for at once. The caller always works too, and never waits for a
// worker that has not begun: on a busy machine a loop costs at most what it costs alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace aerie {

struct ThreadPoolOptions {
    int num_workers = 0;  // beside the callers; 0 is valid
    // How long an idle worker looks for new work before it sleeps, in microseconds. Waking a
    // sleeper costs 5 to 50 µs, spinning costs others a core. -1: 30, or 0 where the workers and
    // one caller are more than the cores.
    int spin_us = -1;
};

class ThreadPool {
  public:
    explicit ThreadPool(const ThreadPoolOptions& options);
    ~ThreadPool();  // no parallel_for may be running
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int num_workers() const { return static_cast<int>(threads_.size()); }

    // Calls fn(i) once for each i in [0, n), in any order on any thread, and returns when all are
    // done. What the calls wrote is visible to the caller then. fn is not copied and must not
    // throw. It may call parallel_for itself. No allocation.
    template <typename Fn>
    void parallel_for(int64_t n, Fn&& fn) {
        using F = std::remove_reference_t<Fn>;
        run(
            n, [](void* context, int64_t i) { (*static_cast<F*>(context))(i); },
            const_cast<void*>(static_cast<const void*>(&fn)));
    }

  private:
    using Call = void (*)(void* context, int64_t i);
    struct Slot;

    void run(int64_t n, Call call, void* context);
    void work();
    bool help_any();

    static constexpr int kNumSlots = 64;  // loops that workers can see at once; more run alone
    std::unique_ptr<Slot[]> slots_;
    std::atomic<uint32_t> epoch_{0};  // grows with each new loop
    std::atomic<bool> stop_{false};
    int spin_us_ = 0;
    std::vector<std::thread> threads_;
};

}  // namespace aerie
