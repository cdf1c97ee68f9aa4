#include "comm/group.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace aerie::comm {
namespace {

template <typename Body>
void on_each_rank(int size, Body body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) threads.emplace_back([=] { body(rank); });
    for (auto& thread : threads) thread.join();
}

double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](timeval t) { return t.tv_sec + t.tv_usec * 1e-6; };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(Group, EachRankSeesWhatAllHaveWritten) {
    for (int size : {1, 2, 3, 8}) {
        auto group = make_local_group(size, 30);
        std::atomic<int> wrong{0};
        on_each_rank(size, [&group, &wrong, size](int rank) {
            int64_t mine = 0;
            for (int round = 0; round < 500; ++round) {
                mine = round * 100 + rank;  // plain memory: the group orders it
                auto all = group->share(rank, &mine);
                if (!all.ok()) {
                    ++wrong;
                    return;
                }
                for (int r = 0; r < size; ++r)
                    wrong += *static_cast<const int64_t*>((*all)[r]) != round * 100 + r;
                if (!group->done(rank).ok()) ++wrong;
                if (round % 7 == 0 && !group->barrier(rank).ok()) ++wrong;
            }
        });
        EXPECT_EQ(wrong, 0) << size << " ranks";
    }
}

TEST(Group, NamesWhoIsMissing) {
    auto group = make_local_group(4, 0.1);
    on_each_rank(4, [&group](int rank) {
        if (rank == 1 || rank == 3) return;
        const auto status = group->barrier(rank);
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.message().find("in barrier() for rank 1, 3 of 4"), std::string::npos)
            << status.message();
    });
    EXPECT_FALSE(group->share(1, nullptr).ok());  // broken for good, and at once
}

TEST(Group, AbortWakesWhoWaitsAndFailsLaterCalls) {
    auto group = make_local_group(3, 30);
    const TimePoint start = Clock::now();
    on_each_rank(3, [&group](int rank) {
        if (rank == 2) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            group->abort("rank 2 has no memory");
            group->abort("another reason, later");
            return;
        }
        const auto status = group->done(rank);
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.message().find("rank 2 has no memory"), std::string::npos);
    });
    EXPECT_LT(seconds_since(start), 10);
    EXPECT_FALSE(group->barrier(0).ok());
    group->reset();
    on_each_rank(3, [&group](int rank) { EXPECT_TRUE(group->barrier(rank).ok()); });
}

TEST(Group, WaitingBurnsNoCpu) {
    auto group = make_local_group(8, 30);
    const double before = cpu_seconds();
    on_each_rank(8, [&group](int rank) {
        if (rank == 7) std::this_thread::sleep_for(std::chrono::milliseconds(400));
        EXPECT_TRUE(group->barrier(rank).ok());
    });
    EXPECT_LT(cpu_seconds() - before, 0.1);  // 7 ranks that spun would have used 0.8
}

}  // namespace
}  // namespace aerie::comm
