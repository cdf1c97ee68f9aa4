// Many clients at once, some of which go away at any moment.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "in_process_cluster.h"

namespace aerie::cluster_tests {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kNumPressed = 100;
#else
inline constexpr int kNumPressed = 1000;
#endif

// kNumPressed requests, each one of `kinds`, 32 at a time; a quarter is cancelled within 60 ms. All others
// get their kind's answer, and nothing is left behind.
inline void press(Cluster& cluster, const std::vector<Request>& kinds,
                  const std::vector<Outcome>& answers) {
    std::atomic<int> next{0}, num_right{0}, num_cancelled{0};
    std::vector<std::thread> clients;
    for (int c = 0; c < 32; ++c) {
        clients.emplace_back([&, c] {
            std::mt19937 random(c);
            while (next++ < kNumPressed) {
                const size_t kind = random() % kinds.size();
                const RequestId id = cluster.start(kinds[kind]);
                if (random() % 4 == 0) {
                    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
                    cluster.abort(id);
                    ++num_cancelled;
                    continue;
                }
                const Outcome outcome = cluster.wait(id);
                EXPECT_EQ(outcome.tokens, answers[kind].tokens) << outcome.error;
                num_right += outcome.tokens == answers[kind].tokens;
            }
        });
    }
    for (auto& client : clients) client.join();
    EXPECT_EQ(num_right + num_cancelled, kNumPressed);
    EXPECT_GT(num_cancelled, kNumPressed / 10);
    cluster.expect_idle();
    EXPECT_TRUE(cluster.flush_cache());
}

}  // namespace aerie::cluster_tests
