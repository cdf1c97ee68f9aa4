// A barrier of threads on one futex word, twice a layer: who comes last moves the word on, the
// others look at it for a few microseconds and then sleep on it.
#include "comm/group.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"

namespace aerie::comm {
namespace {

// About 5 µs: a rank that comes later than that has cost more than a sleep and a wake-up do.
constexpr int kSpins = 100;
constexpr uint32_t kBroken = 1;  // the lowest bit of round_
constexpr uint32_t kOneRound = 2;

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
    static_assert(sizeof(word) == sizeof(uint32_t));
    return syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, value, timeout, nullptr, 0);
}

class LocalGroup final : public Group {
  public:
    LocalGroup(int size, double limit_s)
        : limit_s_(limit_s),
          spins_(size <= static_cast<int>(std::thread::hardware_concurrency()) ? kSpins : 0),
          shown_(size),
          arrived_(size) {}

    int size() const override { return static_cast<int>(shown_.size()); }

    Result<std::span<const void* const>> share(int rank, const void* mine) override {
        CHECK(rank >= 0 && rank < size(), "rank {} of {}", rank, size());
        // Not written after a failed done(): others may still be reading.
        if (round_.load() & kBroken) return broken();
        shown_[rank] = mine;
        RETURN_IF_ERROR(meet(rank, "share"));
        return std::span<const void* const>(shown_);
    }
    Status done(int rank) override { return meet(rank, "done"); }
    Status barrier(int rank) override { return meet(rank, "barrier"); }

    void abort(const std::string& why) override { break_up(why); }

    void reset() override {
        std::lock_guard lock(why_mutex_);
        count_.store(0);
        round_.store((round_.load() & ~kBroken) + kOneRound);
    }

  private:
    struct alignas(64) Arrival {
        std::atomic<uint32_t> round{0};  // the last one that the rank came to, as a value of round_
    };

    Status meet(int rank, const char* what) {
        CHECK(rank >= 0 && rank < size(), "rank {} of {}", rank, size());
        const uint32_t round = round_.load();
        if (round & kBroken) return broken();
        arrived_[rank].round.store(round + kOneRound, std::memory_order_relaxed);
        if (count_.fetch_add(1) + 1 == size()) {
            count_.store(0);
            round_.fetch_add(kOneRound);
            if (sleepers_.load() > 0) futex(round_, FUTEX_WAKE, INT_MAX, nullptr);
        } else {
            for (int i = 0; i < spins_ && round_.load() == round; ++i) __builtin_ia32_pause();
            if (round_.load() == round) sleep(rank, round, what);
        }
        if (round_.load() & kBroken) return broken();
        return {};
    }

    void sleep(int rank, uint32_t round, const char* what) {
        const TimePoint start = Clock::now();
        sleepers_.fetch_add(1);
        while (round_.load() == round) {
            const double left_s = limit_s_ - seconds_since(start);
            if (left_s <= 0) {
                break_up(fmt::format("rank {} waited {:.1f} s in {}() for {}", rank,
                                     seconds_since(start), what, missing(round)));
                break;
            }
            const auto whole = static_cast<time_t>(left_s);
            const timespec timeout{whole, static_cast<long>((left_s - whole) * 1e9)};
            futex(round_, FUTEX_WAIT, round, &timeout);
        }
        sleepers_.fetch_sub(1);
    }

    std::string missing(uint32_t round) const {
        std::string ranks;
        for (int rank = 0; rank < size(); ++rank) {
            if (arrived_[rank].round.load(std::memory_order_relaxed) != round + kOneRound)
                ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
        }
        return fmt::format("rank {} of {}", ranks.empty() ? "?" : ranks, size());
    }

    void break_up(const std::string& why) {
        {
            std::lock_guard lock(why_mutex_);
            if (round_.load() & kBroken) return;  // the first reason is the cause
            why_ = why;
            round_.fetch_or(kBroken);
        }
        futex(round_, FUTEX_WAKE, INT_MAX, nullptr);
    }

    Error broken() const {
        std::lock_guard lock(why_mutex_);
        return error("the replica's group is broken: {}", why_);
    }

    const double limit_s_;
    const int spins_;
    std::vector<const void*> shown_;  // [size]
    std::vector<Arrival> arrived_;    // [size], for the error message
    alignas(64) std::atomic<int> count_{0};
    std::atomic<int> sleepers_{0};
    alignas(64) std::atomic<uint32_t> round_{0};  // kOneRound a round, and kBroken
    mutable std::mutex why_mutex_;
    std::string why_;
};

}  // namespace

std::unique_ptr<Group> make_local_group(int size, double limit_s) {
    CHECK(size > 0, "group of {}", size);
    return std::make_unique<LocalGroup>(size, limit_s);
}

}  // namespace aerie::comm
