#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace aerie {
namespace {

TEST(ThreadPool, CallsEachIndexOnce) {
    for (int workers : {0, 1, 3})
        for (int spin_us : {0, 20}) {
            ThreadPool pool({workers, spin_us});
            EXPECT_EQ(pool.num_workers(), workers);
            for (int64_t n : {0, 1, 2, 5, 1000}) {
                std::vector<int> calls(n);  // written by one thread each
                pool.parallel_for(n, [&](int64_t i) { ++calls[i]; });
                EXPECT_EQ(calls, std::vector<int>(n, 1)) << workers << " workers, n " << n;
            }
        }
}

TEST(ThreadPool, ServesManyCallersAtOnceAndNested) {
    ThreadPool pool({.num_workers = 2, .spin_us = 5});
    std::vector<std::thread> callers;
    std::atomic<int64_t> total{0};
    for (int c = 0; c < 4; ++c)
        callers.emplace_back([&] {
            for (int round = 0; round < 200; ++round) {
                std::vector<int64_t> values(16);
                pool.parallel_for(4, [&](int64_t i) {
                    pool.parallel_for(4, [&, i](int64_t j) { values[i * 4 + j] = i * 4 + j; });
                });
                for (int64_t v : values) total += v;
            }
        });
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(total.load(), 4 * 200 * 120);
}

// Every worker is held inside one loop; another caller's loop must end without them.
TEST(ThreadPool, ACallerDoesNotWaitForBusyWorkers) {
    ThreadPool pool({.num_workers = 1});
    std::atomic<int> inside{0};
    std::atomic<bool> release{false};
    std::thread holder([&] {
        pool.parallel_for(2, [&](int64_t) {
            ++inside;
            while (!release) std::this_thread::yield();
        });
    });
    while (inside < 2) std::this_thread::yield();
    int calls = 0;
    pool.parallel_for(10, [&](int64_t) { ++calls; });
    EXPECT_EQ(calls, 10);
    release = true;
    holder.join();
}

TEST(ThreadPool, WorkersDoTakePart) {
    ThreadPool pool({.num_workers = 1});
    const std::thread::id self = std::this_thread::get_id();
    std::atomic<bool> helped{false};
    const TimePoint limit = after(20);
    while (!helped && Clock::now() < limit)
        pool.parallel_for(2, [&](int64_t) {
            if (std::this_thread::get_id() != self) helped = true;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
    EXPECT_TRUE(helped);
}

}  // namespace
}  // namespace aerie
