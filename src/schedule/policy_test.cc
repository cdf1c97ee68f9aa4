// The policies on recorded queues.
#include "schedule/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace aerie::schedule {
namespace {

using testing::ElementsAre;

// Five requests of a chat service, as they came: two turns of one conversation, a long job, a short
// one, and one that nothing is cached of.
std::vector<Waiting> recorded() {
    return {{.order = 1, .num_cached = 64, .node = 1, .max_new_tokens = 16, .priority = 0},
            {.order = 2, .num_cached = 512, .node = 2, .max_new_tokens = 900, .priority = 5},
            {.order = 3, .num_cached = 0, .node = -1, .max_new_tokens = 16, .priority = -1},
            {.order = 4, .num_cached = 512, .node = 2, .max_new_tokens = 16, .priority = 5},
            {.order = 5, .num_cached = 128, .node = 3, .max_new_tokens = 100, .priority = 0}};
}
// Nodes 0 and 3 below the root, 1 and 2 below 0.
const std::vector<int> kParents = {-1, 0, 0, -1};

std::vector<int> ordered(Policy policy, const std::vector<Waiting>& queue, uint64_t round = 1) {
    return order_of({.policy = policy}, queue, kParents, round);
}

TEST(Policy, Fcfs) {
    std::vector<Waiting> queue = recorded();
    std::swap(queue[0], queue[4]);  // the place in the queue plays no part
    EXPECT_THAT(ordered(Policy::kFcfs, queue), ElementsAre(4, 1, 2, 3, 0));
}

TEST(Policy, LpmTakesTheLongestCachedPrefix) {
    EXPECT_THAT(ordered(Policy::kLpm, recorded()), ElementsAre(1, 3, 4, 0, 2));
}

TEST(Policy, LpmIsFcfsWhereManyWait) {
    std::vector<Waiting> queue;
    for (int i = 0; i < kMaxLpmQueue; ++i)
        queue.push_back({.order = static_cast<uint64_t>(i), .num_cached = i});
    EXPECT_EQ(ordered(Policy::kLpm, queue).front(), kMaxLpmQueue - 1);
    queue.push_back({.order = 1000, .num_cached = 10000});
    EXPECT_FALSE(reads_cache(Policy::kLpm, queue.size()));
    EXPECT_EQ(ordered(Policy::kLpm, queue).front(), 0);
}

// Below node 0 wait three, of these two at node 2; then node 3; what has nothing comes last.
TEST(Policy, DfsWeightWalksTheHeaviestSubtreeFirst) {
    EXPECT_THAT(ordered(Policy::kDfsWeight, recorded()), ElementsAre(1, 3, 0, 4, 2));
    std::vector<Waiting> queue = recorded();
    queue.push_back({.order = 6, .node = 0});  // a node's own requests come after its children's
    EXPECT_THAT(ordered(Policy::kDfsWeight, queue), ElementsAre(1, 3, 0, 5, 4, 2));
    queue[1].node = 1;  // as heavy as node 2 now, which has the newer ones
    queue[3].node = queue[4].node = 2;
    EXPECT_THAT(ordered(Policy::kDfsWeight, queue), ElementsAre(0, 1, 3, 4, 5, 2));
}

TEST(Policy, LofTakesTheLongestOutput) {
    EXPECT_THAT(ordered(Policy::kLof, recorded()), ElementsAre(1, 4, 0, 2, 3));
}

TEST(Policy, PriorityEitherWay) {
    EXPECT_THAT(ordered(Policy::kPriority, recorded()), ElementsAre(1, 3, 0, 4, 2));
    EXPECT_THAT(order_of({.policy = Policy::kPriority, .low_priority_values_first = true},
                         recorded(), {}, 1),
                ElementsAre(2, 0, 4, 1, 3));
}

TEST(Policy, RandomIsAnotherOrderInEachRoundAndTheSameInOne) {
    EXPECT_EQ(ordered(Policy::kRandom, recorded(), 7), ordered(Policy::kRandom, recorded(), 7));
    std::vector<int> num_first(5, 0);
    for (uint64_t round = 0; round < 1000; ++round)
        ++num_first[ordered(Policy::kRandom, recorded(), round).front()];
    for (const int count : num_first) EXPECT_NEAR(count, 200, 60);
}

TEST(Policy, RetractedAndOvertakenComeFirst) {
    for (const Policy policy : {Policy::kFcfs, Policy::kLpm, Policy::kDfsWeight, Policy::kLof,
                                Policy::kRandom, Policy::kPriority}) {
        std::vector<Waiting> queue = recorded();
        queue[4].retracted = true;
        queue[2].num_overtaken = kMaxOvertaken;
        queue[0].num_overtaken = kMaxOvertaken - 1;
        const std::vector<int> order = ordered(policy, queue);
        EXPECT_EQ(order[0], 4);
        EXPECT_EQ(order[1], 2);
    }
}

TEST(Policy, EveryOrderIsAPermutation) {
    for (const Policy policy : {Policy::kFcfs, Policy::kLpm, Policy::kDfsWeight, Policy::kLof,
                                Policy::kRandom, Policy::kPriority}) {
        EXPECT_THAT(ordered(policy, {}), ElementsAre());
        std::vector<int> order = ordered(policy, recorded());
        std::sort(order.begin(), order.end());
        EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4));
    }
}

}  // namespace
}  // namespace aerie::schedule
