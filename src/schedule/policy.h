// Policy: in which order waiting requests are tried. Pure functions over a view of the queue.
//
// Whatever the policy, retracted requests come first, by their arrival, then those that
// kMaxOvertaken others have overtaken, by theirs: so nobody waits forever behind newer ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace aerie::schedule {

enum class Policy : uint8_t {
    kFcfs,       // first come, first served
    kLpm,        // the longest cached prefix first; fcfs where more than kMaxLpmQueue wait
    kDfsWeight,  // depth first through the prefix cache, the subtree that most wait for first
    kLof,        // the longest output (max_new_tokens) first
    kRandom,     // anew in each round
    kPriority,   // the request's priority, larger values first
};

constexpr int kMaxLpmQueue = 128;
// A request that was overtaken so often by requests that came after it is overtaken no more.
constexpr int kMaxOvertaken = 256;

// True where the order depends on what the prefix cache holds.
inline bool reads_cache(Policy policy, size_t num_waiting) {
    return policy == Policy::kDfsWeight ||
           (policy == Policy::kLpm && num_waiting <= size_t{kMaxLpmQueue});
}

struct PolicyOptions {
    Policy policy = Policy::kFcfs;
    bool low_priority_values_first = false;  // kPriority: smaller values first
};

// One that waits. Ties of every policy are broken by `order`, which is unique.
struct Waiting {
    uint64_t order = 0;  // of arrival
    int num_cached = 0;  // tokens of its prefix that the cache holds
    int node = -1;       // kDfsWeight: where in `parents` that prefix ends; -1: nothing is cached
    int max_new_tokens = 0;
    int priority = 0;
    int num_overtaken = 0;
    bool retracted = false;
};

// The places in `queue`, first to be tried first. parents: [node] a node's parent in the prefix
// cache's tree, -1 below the root; only kDfsWeight reads it. round: seeds kRandom.
std::vector<int> order_of(const PolicyOptions& options, std::span<const Waiting> queue,
                          std::span<const int> parents, uint64_t round);

}  // namespace aerie::schedule
