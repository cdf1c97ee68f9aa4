// For tests: small requests and options, and plans in a form that compares and prints.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <vector>

#include "schedule/scheduler.h"

namespace aerie::schedule {

inline constexpr int kPage = 4;

inline Request request(RequestId id, int num_tokens, int max_new = 8) {
    Request result;
    result.id = id;
    result.prompt.assign(num_tokens, 7);
    result.sampling.max_new_tokens = max_new;
    return result;
}

inline SchedulerOptions options(Flavour flavour, int num_blocks, int chunk = 16) {
    SchedulerOptions result;
    result.flavour = flavour;
    result.kv = {.num_blocks = num_blocks, .page_size = kPage, .cp = 1};
    result.chunked_prefill_size = chunk;
    result.max_running_requests = 8;
    result.eos_ids = {2};
    return result;
}

// Ends the step: each sampling entry gains `token`.
inline std::vector<TokenOut> end_step(Scheduler& scheduler, const Plan& plan, int32_t token = 9) {
    std::vector<Advance> advances;
    for (const auto* entries : {&plan.prefill, &plan.decode})
        for (const PlanEntry& entry : *entries)
            if (entry.sample && entry.sequence->state != State::kEnded)
                advances.push_back({entry.sequence, {&token, 1}});
    return scheduler.on_result(plan, advances);
}

struct Shape {
    RequestId id;
    int first, num_tokens;
    bool sample;
    bool operator==(const Shape&) const = default;
    friend void PrintTo(const Shape& s, std::ostream* out) {
        *out << s.id << ":" << s.first << "+" << s.num_tokens << (s.sample ? "!" : "");
    }
};
inline std::vector<Shape> shapes(const std::vector<PlanEntry>& entries) {
    std::vector<Shape> result;
    for (const PlanEntry& entry : entries)
        result.push_back({entry.sequence->id, entry.first, entry.num_tokens, entry.sample});
    return result;
}
using Shapes = std::vector<Shape>;

}  // namespace aerie::schedule
