#include "base/thread_pool.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "base/thread.h"

namespace aerie {
namespace {

constexpr uint32_t kOpen = 1u << 31;   // workers may join
constexpr uint32_t kTaken = 1u << 30;  // the slot belongs to a caller
constexpr uint32_t kHelpers = kTaken - 1;

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace

// One loop that workers can see. state holds the two flags and the number of workers inside; the
// other fields are written while it is taken and not open, and read by those who have joined.
struct alignas(64) ThreadPool::Slot {
    std::atomic<uint32_t> state{0};
    Call call = nullptr;
    void* context = nullptr;
    int64_t n = 0;
    alignas(64) std::atomic<int64_t> next{0};

    void run_some() {
        for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) call(context, i);
    }
};

ThreadPool::ThreadPool(const ThreadPoolOptions& options)
    : slots_(std::make_unique<Slot[]>(kNumSlots)) {
    CHECK(options.num_workers >= 0, "num_workers {}", options.num_workers);
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    spin_us_ = options.spin_us >= 0 ? options.spin_us : options.num_workers < cores ? 30 : 0;
    for (int i = 0; i < options.num_workers; ++i)
        threads_.emplace_back([this, i] {
            set_thread_name("pool-" + std::to_string(i));
            work();
        });
}

ThreadPool::~ThreadPool() {
    stop_.store(true);
    epoch_.fetch_add(1);
    epoch_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run(int64_t n, Call call, void* context) {
    Slot* slot = nullptr;
    if (n > 1 && !threads_.empty()) {
        for (int s = 0; s < kNumSlots && slot == nullptr; ++s) {
            uint32_t expected = 0;
            if (slots_[s].state.load(std::memory_order_relaxed) == 0 &&
                slots_[s].state.compare_exchange_strong(expected, kTaken,
                                                        std::memory_order_acquire))
                slot = &slots_[s];
        }
    }
    if (slot == nullptr) {
        for (int64_t i = 0; i < n; ++i) call(context, i);
        return;
    }
    slot->call = call;
    slot->context = context;
    slot->n = n;
    slot->next.store(0, std::memory_order_relaxed);
    slot->state.store(kTaken | kOpen, std::memory_order_release);
    epoch_.fetch_add(1);
    if (n > 2)
        epoch_.notify_all();
    else
        epoch_.notify_one();
    slot->run_some();

    // Closed to those who have not begun; those inside are finishing their last index.
    uint32_t state = slot->state.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
    for (int spins = 0; (state & kHelpers) != 0; ++spins) {
        if (spins < 2000)
            pause();
        else
            slot->state.wait(state, std::memory_order_acquire);
        state = slot->state.load(std::memory_order_acquire);
    }
    slot->state.store(0, std::memory_order_release);
}

bool ThreadPool::help_any() {
    bool helped = false;
    for (int s = 0; s < kNumSlots; ++s) {
        Slot& slot = slots_[s];
        uint32_t state = slot.state.load(std::memory_order_relaxed);
        bool joined = false;
        while ((state & kOpen) != 0 && !joined)
            joined = slot.state.compare_exchange_weak(state, state + 1, std::memory_order_acquire,
                                                      std::memory_order_relaxed);
        if (!joined) continue;
        helped = helped || slot.next.load(std::memory_order_relaxed) < slot.n;
        slot.run_some();
        const uint32_t left = slot.state.fetch_sub(1, std::memory_order_acq_rel) - 1;
        if ((left & (kOpen | kHelpers)) == 0) slot.state.notify_all();
    }
    return helped;
}

void ThreadPool::work() {
    while (!stop_.load(std::memory_order_relaxed)) {
        const uint32_t seen = epoch_.load();
        if (help_any()) continue;
        if (spin_us_ > 0) {
            const TimePoint until = Clock::now() + std::chrono::microseconds(spin_us_);
            int spins = 0;
            while (epoch_.load(std::memory_order_relaxed) == seen &&
                   (++spins % 32 != 0 || Clock::now() < until))
                pause();
        }
        if (epoch_.load() == seen) epoch_.wait(seen);
    }
}

}  // namespace aerie
