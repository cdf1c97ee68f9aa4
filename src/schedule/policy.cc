#include "schedule/policy.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/hash.h"

namespace aerie::schedule {
namespace {

// For each request a key, smaller first, by a walk through the tree of their prefixes: children
// before the node's own requests, the child with the most requests below it first, among equals
// the one with the oldest.
std::vector<int64_t> dfs_keys(std::span<const Waiting> queue, std::span<const int> parents) {
    struct Node {
        int64_t weight = 0;
        uint64_t oldest = std::numeric_limits<uint64_t>::max();
        std::vector<int> children;
        std::vector<int> requests;
    };
    const int root = static_cast<int>(parents.size());
    std::vector<Node> nodes(parents.size() + 1);
    for (int n = 0; n < root; ++n) nodes[parents[n] < 0 ? root : parents[n]].children.push_back(n);
    for (size_t i = 0; i < queue.size(); ++i) {
        const int end = queue[i].node < 0 ? root : queue[i].node;
        nodes[end].requests.push_back(static_cast<int>(i));
        for (int n = end;; n = parents[n] < 0 ? root : parents[n]) {
            ++nodes[n].weight;
            nodes[n].oldest = std::min(nodes[n].oldest, queue[i].order);
            if (n == root) break;
        }
    }
    std::vector<int64_t> keys(queue.size(), 0);
    int64_t next = 0;
    // Depth first with a stack of its own: a node is met to open its children, then to number its
    // requests.
    std::vector<std::pair<int, bool>> stack = {{root, false}};
    while (!stack.empty()) {
        const auto [n, opened] = stack.back();
        stack.pop_back();
        Node& node = nodes[n];
        if (opened) {
            for (const int i : node.requests) keys[i] = next;
            ++next;
            continue;
        }
        stack.emplace_back(n, true);
        std::sort(node.children.begin(), node.children.end(), [&](int a, int b) {
            if (nodes[a].weight != nodes[b].weight) return nodes[a].weight < nodes[b].weight;
            return nodes[a].oldest > nodes[b].oldest;
        });
        for (const int child : node.children) stack.emplace_back(child, false);
    }
    return keys;
}

// Smaller first.
std::vector<int64_t> keys_of(const PolicyOptions& options, std::span<const Waiting> queue,
                             std::span<const int> parents, uint64_t round) {
    std::vector<int64_t> keys(queue.size(), 0);
    const auto fill = [&](auto key) {
        for (size_t i = 0; i < queue.size(); ++i) keys[i] = key(queue[i]);
    };
    switch (options.policy) {
        case Policy::kFcfs: break;
        case Policy::kLpm:
            if (reads_cache(options.policy, queue.size()))
                fill([](const Waiting& w) { return -int64_t{w.num_cached}; });
            break;
        case Policy::kDfsWeight: return dfs_keys(queue, parents);
        case Policy::kLof:
            fill([](const Waiting& w) { return -int64_t{w.max_new_tokens}; });
            break;
        case Policy::kRandom:
            fill([round](const Waiting& w) {
                return static_cast<int64_t>(mix64(mix64(round) ^ w.order) >> 1);
            });
            break;
        case Policy::kPriority:
            fill([&](const Waiting& w) {
                return options.low_priority_values_first ? int64_t{w.priority}
                                                         : -int64_t{w.priority};
            });
            break;
    }
    return keys;
}

}  // namespace

std::vector<int> order_of(const PolicyOptions& options, std::span<const Waiting> queue,
                          std::span<const int> parents, uint64_t round) {
    const std::vector<int64_t> keys = keys_of(options, queue, parents, round);
    std::vector<int> order(queue.size());
    std::iota(order.begin(), order.end(), 0);
    const auto rank = [&](const Waiting& w) {
        if (w.retracted) return 0;
        return w.num_overtaken >= kMaxOvertaken ? 1 : 2;
    };
    std::sort(order.begin(), order.end(), [&](int a, int b) {
        const int rank_a = rank(queue[a]), rank_b = rank(queue[b]);
        if (rank_a != rank_b) return rank_a < rank_b;
        if (rank_a == 2 && keys[a] != keys[b]) return keys[a] < keys[b];
        return queue[a].order < queue[b].order;
    });
    return order;
}

}  // namespace aerie::schedule
