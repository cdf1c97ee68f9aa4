#include "transfer/policy.h"

#include <gtest/gtest.h>

#include <iterator>

#include "metrics/names.h"

namespace aerie::transfer {
namespace {

struct Case {
    const char* name;
    Policy policy;
    TransferFacts facts;
    Choice expected;
};

constexpr TransferFacts kNew{.num_tokens = 200, .page_size = 64};
constexpr TransferFacts with(TransferFacts facts, auto change) {
    change(facts);
    return facts;
}
const Choice kPushed{Mode::kPush, Reason::kDefault};

const Case kCases[] = {
    {"active always pushes", Policy::kActive,
     with(kNew, [](auto& f) { f.num_cached = 192, f.waited_s = 9, f.prefill_idle = true; }),
     {Mode::kPush, Reason::kConfigured}},
    {"passive always pulls", Policy::kPassive, kNew, {Mode::kPull, Reason::kConfigured}},
    {"a new request is pushed", Policy::kActivePassive, kNew, kPushed},
    {"waiting alone is no reason", Policy::kActivePassive,
     with(kNew, [](auto& f) { f.waited_s = 9; }), kPushed},
    {"idle alone is no reason", Policy::kActivePassive,
     with(kNew, [](auto& f) { f.prefill_idle = true; }), kPushed},
    {"late binding", Policy::kActivePassive,
     with(kNew, [](auto& f) { f.waited_s = kOfferWaitSeconds, f.prefill_idle = true; }),
     {Mode::kPull, Reason::kLateBinding}},
    {"a part of the prompt is cached", Policy::kActivePassive,
     with(kNew, [](auto& f) { f.num_cached = 128; }), kPushed},
    {"the whole prompt is cached", Policy::kActivePassive,
     with(kNew, [](auto& f) { f.num_cached = 192; }), {Mode::kPull, Reason::kPromptCached}},
    {"of a whole number of pages the last is computed", Policy::kActivePassive,
     with(kNew, [](auto& f) { f.num_tokens = 192, f.num_cached = 128; }),
     {Mode::kPull, Reason::kPromptCached}},
    {"less than a page is never cached", Policy::kActivePassive,
     with(kNew, [](auto& f) { f.num_tokens = 64; }), kPushed},
    {"retracted, the prefix is gone", Policy::kActivePassive,
     with(kNew, [](auto& f) { f.num_before = 100; }), kPushed},
    {"retracted, the prefix is held", Policy::kActivePassive,
     with(kNew, [](auto& f) { f.num_before = 100, f.num_cached = 64; }),
     {Mode::kPull, Reason::kPrefixHeld}},
    {"retracted, the prefix is shorter than a page", Policy::kActivePassive,
     with(kNew, [](auto& f) { f.num_before = 60; }), kPushed},
};

TEST(Policy, EachRule) {
    for (const Case& c : kCases) {
        const Choice choice = choose(c.policy, c.facts);
        EXPECT_EQ(static_cast<int>(choice.mode), static_cast<int>(c.expected.mode)) << c.name;
        EXPECT_EQ(static_cast<int>(choice.reason), static_cast<int>(c.expected.reason)) << c.name;
    }
}

TEST(Policy, EachReasonHasAName) {
    EXPECT_EQ(std::size(metrics::kKvPolicyReasons), static_cast<size_t>(Reason::kCount));
}

}  // namespace
}  // namespace aerie::transfer
