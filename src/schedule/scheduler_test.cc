#include "schedule/scheduler.h"

#include <gtest/gtest.h>

#include "schedule/plan_shapes.h"

namespace aerie::schedule {
namespace {

TEST(NewTokenRatio, FollowsTheRule) {
    NewTokenRatio ratio(1.0);
    EXPECT_DOUBLE_EQ(ratio.value(), 0.7);
    ratio.decode_step();
    EXPECT_DOUBLE_EQ(ratio.value(), 0.7 - (0.7 - 0.098) / 600);
    for (int i = 0; i < 1000; ++i) ratio.decode_step();
    EXPECT_NEAR(ratio.value(), 0.098, 1e-12);
    ratio.retraction(100, 999, 5);  // (100 + 20·5) / 1000
    EXPECT_DOUBLE_EQ(ratio.value(), 0.2);
    ratio.retraction(100, 50, 5);
    EXPECT_DOUBLE_EQ(ratio.value(), 1.0);
    ratio.idle();
    EXPECT_DOUBLE_EQ(ratio.value(), 0.7);
    EXPECT_DOUBLE_EQ(NewTokenRatio(5).value(), 1.0);
}

TEST(Unified, PrefillsThenDecodesToTheLimit) {
    Scheduler scheduler(options(Flavour::kUnified, 64));
    ASSERT_TRUE(scheduler.add(request(1, 5, 3)).ok());
    Plan plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{1, 0, 5, true}}));
    EXPECT_EQ(plan.step, 1u);
    std::vector<TokenOut> gained = end_step(scheduler, plan);
    ASSERT_EQ(gained.size(), 1u);
    EXPECT_EQ(gained[0].position, 0);
    plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.decode), (Shapes{{1, 5, 1, true}}));
    EXPECT_EQ(end_step(scheduler, plan)[0].finish, FinishReason::kNone);
    plan = scheduler.plan();
    gained = end_step(scheduler, plan);
    EXPECT_EQ(gained[0].finish, FinishReason::kLength);
    EXPECT_EQ(gained[0].position, 2);
    EXPECT_TRUE(scheduler.plan().empty());
    EXPECT_TRUE(scheduler.idle());
    EXPECT_EQ(scheduler.counts().used_tokens, 0);
}

TEST(Unified, StopsAtEosAndStopTokens) {
    struct Case {
        bool ignore_eos;
        std::vector<int32_t> stop;
        int32_t token;
        FinishReason finish;
    };
    for (const Case& c :
         {Case{false, {}, 2, FinishReason::kStop}, Case{true, {}, 2, FinishReason::kNone},
          Case{true, {9}, 9, FinishReason::kStop}, Case{false, {9}, 8, FinishReason::kNone}}) {
        Scheduler scheduler(options(Flavour::kUnified, 64));
        Request r = request(1, 5);
        r.sampling.ignore_eos = c.ignore_eos;
        r.sampling.stop_token_ids = c.stop;
        ASSERT_TRUE(scheduler.add(r).ok());
        const TokenOut out = end_step(scheduler, scheduler.plan(), c.token)[0];
        EXPECT_EQ(out.finish, c.finish);
        EXPECT_EQ(out.matched_token, c.finish == FinishReason::kStop ? c.token : -1);
        EXPECT_EQ(out.tokens, std::vector<int32_t>{c.token});
    }
}

TEST(Unified, CutsTheLastAtAPageBorderAndContinuesWithIt) {
    Scheduler scheduler(options(Flavour::kUnified, 64, 16));
    ASSERT_TRUE(scheduler.add(request(1, 6)).ok());
    ASSERT_TRUE(scheduler.add(request(2, 25)).ok());
    ASSERT_TRUE(scheduler.add(request(3, 3)).ok());
    Plan plan = scheduler.plan();  // 10 left for the second: two pages
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{1, 0, 6, true}, {2, 0, 8, false}}));
    end_step(scheduler, plan);
    plan = scheduler.plan();  // 16 of its 17: a page border again; nothing left for the third
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{2, 8, 16, false}}));
    end_step(scheduler, plan);
    plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{2, 24, 1, true}, {3, 0, 3, true}}));
    end_step(scheduler, plan);
    plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.decode), (Shapes{{1, 6, 1, true}, {2, 25, 1, true}, {3, 3, 1, true}}));
}

TEST(Unified, WithoutChunkingPromptsAreWhole) {
    SchedulerOptions o = options(Flavour::kUnified, 64, -1);
    o.max_prefill_tokens = 20;
    Scheduler scheduler(o);
    ASSERT_TRUE(scheduler.add(request(1, 30)).ok());
    ASSERT_TRUE(scheduler.add(request(2, 12)).ok());
    ASSERT_TRUE(scheduler.add(request(3, 9)).ok());
    EXPECT_EQ(shapes(scheduler.plan().prefill), (Shapes{{1, 0, 30, true}}));
    EXPECT_EQ(shapes(scheduler.plan().prefill), (Shapes{{2, 0, 12, true}}));
    EXPECT_EQ(shapes(scheduler.plan().prefill), (Shapes{{3, 0, 9, true}}));
}

// A plan is made while the step before runs; the end that its result brings comes one step late.
TEST(Unified, PlansAheadOfResults) {
    Scheduler scheduler(options(Flavour::kUnified, 64));
    ASSERT_TRUE(scheduler.add(request(1, 4, 3)).ok());
    ASSERT_TRUE(scheduler.add(request(2, 4, 8)).ok());
    const Plan first = scheduler.plan();
    const Plan second = scheduler.plan();
    EXPECT_EQ(shapes(second.decode), (Shapes{{1, 4, 1, true}, {2, 4, 1, true}}));
    const Plan third = scheduler.plan();
    EXPECT_EQ(shapes(third.decode), (Shapes{{1, 5, 1, true}, {2, 5, 1, true}}));
    const Plan fourth = scheduler.plan();  // the first request's three tokens are on their way
    EXPECT_EQ(shapes(fourth.decode), (Shapes{{2, 6, 1, true}}));
    end_step(scheduler, first);
    const int64_t used = scheduler.counts().used_tokens;
    const int32_t eos = 2, other = 5;
    const std::vector<TokenOut> gained =
        scheduler.on_result(second, std::vector<Advance>{{second.decode[0].sequence, {&eos, 1}},
                                                         {second.decode[1].sequence, {&other, 1}}});
    EXPECT_EQ(gained[0].finish, FinishReason::kStop);
    EXPECT_EQ(scheduler.counts().used_tokens, used);  // the third step still uses its blocks
    EXPECT_EQ(scheduler.find(1), nullptr);
    EXPECT_EQ(third.decode[0].sequence->id, 1u);
    const std::vector<TokenOut> rest = end_step(scheduler, third);
    ASSERT_EQ(rest.size(), 1u);
    EXPECT_EQ(rest[0].id, 2u);
    EXPECT_EQ(scheduler.counts().used_tokens, 2 * kPage);
}

TEST(Unified, AbortFreesWhenTheStepHasEnded) {
    Scheduler scheduler(options(Flavour::kUnified, 64));
    ASSERT_TRUE(scheduler.add(request(1, 5)).ok());
    ASSERT_TRUE(scheduler.add(request(2, 5)).ok());
    const Plan plan = scheduler.plan();
    scheduler.abort(1);
    scheduler.abort(1);
    scheduler.abort(99);
    EXPECT_EQ(scheduler.counts().used_tokens, 4 * kPage);
    EXPECT_EQ(scheduler.counts().num_running, 1);
    ASSERT_TRUE(scheduler.add(request(1, 3)).ok());  // the number may come again
    EXPECT_EQ(end_step(scheduler, plan).size(), 1u);
    EXPECT_EQ(scheduler.counts().used_tokens, 2 * kPage);
    scheduler.abort(2);
    EXPECT_EQ(scheduler.counts().used_tokens, 0);
}

TEST(Unified, AdmissionKeepsRoomForGrowth) {
    Scheduler scheduler(options(Flavour::kUnified, 16, 64));  // 64 tokens
    ASSERT_TRUE(scheduler.add(request(1, 8, 20)).ok());
    ASSERT_TRUE(scheduler.add(request(2, 8, 20)).ok());
    ASSERT_TRUE(scheduler.add(request(3, 4, 1)).ok());
    // 8 + 20 + 4 <= 64, and 8 + 20 + 4 <= 64 - 8 - 20; then 4 + 1 + 4 > 64 - 2·28.
    Plan plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{1, 0, 8, true}, {2, 0, 8, true}}));
    // Next the two count with 0.7 · 19 each: 48 - 26 = 22 are left.
    plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{3, 0, 4, true}}));
}

TEST(Unified, NobodyOvertakesTheHead) {
    Scheduler scheduler(options(Flavour::kUnified, 16, 64));
    ASSERT_TRUE(scheduler.add(request(1, 40, 8)).ok());
    ASSERT_TRUE(scheduler.add(request(2, 40, 8)).ok());
    ASSERT_TRUE(scheduler.add(request(3, 1, 1)).ok());
    EXPECT_EQ(shapes(scheduler.plan().prefill), (Shapes{{1, 0, 40, true}}));
    EXPECT_TRUE(scheduler.plan().prefill.empty());
    EXPECT_EQ(scheduler.counts().num_waiting, 2);
}

TEST(Unified, RespectsMaxRunning) {
    SchedulerOptions o = options(Flavour::kUnified, 64, 64);
    o.max_running_requests = 2;
    Scheduler scheduler(o);
    for (RequestId id = 1; id <= 3; ++id) ASSERT_TRUE(scheduler.add(request(id, 4)).ok());
    EXPECT_EQ(scheduler.plan().prefill.size(), 2u);
    EXPECT_EQ(scheduler.plan().decode.size(), 2u);
}

TEST(Unified, RetractsFewestOutputThenLongestPrompt) {
    SchedulerOptions o = options(Flavour::kUnified, 24, 64);  // 96 tokens
    o.schedule_conservativeness = 0.01;                       // admit all that fits alone
    Scheduler scheduler(o);
    ASSERT_TRUE(scheduler.add(request(1, 8, 60)).ok());
    for (int step = 0; step < 3; ++step) end_step(scheduler, scheduler.plan());
    ASSERT_TRUE(scheduler.add(request(2, 4, 60)).ok());
    end_step(scheduler, scheduler.plan());
    ASSERT_TRUE(scheduler.add(request(3, 12, 50)).ok());
    end_step(scheduler, scheduler.plan());
    ASSERT_EQ(scheduler.counts().num_running, 3);

    std::vector<RequestId> order;
    while (order.size() < 2) {
        Plan ahead = scheduler.plan();
        for (const Retracted& r : ahead.retracted) {
            order.push_back(r.id);
            EXPECT_EQ(r.tokens.size(), (r.id == 3 ? 12u : 4u) + r.num_output);
            EXPECT_EQ(scheduler.find(r.id)->state, State::kWaiting);
            EXPECT_TRUE(scheduler.find(r.id)->blocks.empty());
        }
        ASSERT_FALSE(ahead.empty());
        end_step(scheduler, ahead);
    }
    // 2 and 3 have as many, fewer than 1, and 3's prompt is longer; then 2 has fewer than 1.
    EXPECT_EQ(order, (std::vector<RequestId>{3, 2}));
    EXPECT_GT(scheduler.counts().new_token_ratio, 0.1);
    int steps = 0;
    for (; !scheduler.idle() && steps < 300; ++steps) end_step(scheduler, scheduler.plan());
    EXPECT_LT(steps, 300);
}

// While a step runs nobody is retracted: its end may bring room, and makes all tokens known.
TEST(Unified, RetractsOnlyBetweenSteps) {
    SchedulerOptions o = options(Flavour::kUnified, 9, 64);  // 36 tokens
    o.schedule_conservativeness = 0.01;
    Scheduler scheduler(o);
    ASSERT_TRUE(scheduler.add(request(1, 8, 20)).ok());
    end_step(scheduler, scheduler.plan());
    ASSERT_TRUE(scheduler.add(request(2, 8, 14)).ok());
    end_step(scheduler, scheduler.plan());
    Plan running = scheduler.plan();
    Plan ahead;
    for (int step = 0; step < 20; ++step) {
        ahead = scheduler.plan();
        EXPECT_TRUE(ahead.retracted.empty());
        if (ahead.empty()) break;
        end_step(scheduler, running);
        running = ahead;
    }
    ASSERT_TRUE(ahead.empty());
    end_step(scheduler, running);
    ahead = scheduler.plan();
    EXPECT_FALSE(ahead.empty());
    EXPECT_EQ(ahead.retracted.size(), 1u);
    EXPECT_EQ(ahead.decode.size(), 1u);
}

TEST(Unified, WhatCanNeverFitIsRefusedWithTheNumbers) {
    Scheduler scheduler(options(Flavour::kUnified, 4));  // 16 tokens, 12 for one request
    const Status status = scheduler.add(request(1, 12));
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find("12 tokens"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("may use 12 tokens"), std::string::npos);
    EXPECT_FALSE(scheduler.add(request(2, 0)).ok());
    ASSERT_TRUE(scheduler.add(request(3, 4, 1000)).ok());
    EXPECT_FALSE(scheduler.add(request(3, 4)).ok());
    // Alone, it gains what the cache holds.
    TokenOut last;
    for (int step = 0; step < 20 && !scheduler.idle(); ++step)
        last = end_step(scheduler, scheduler.plan()).at(0);
    EXPECT_EQ(last.finish, FinishReason::kLength);
    EXPECT_EQ(last.position, 7);  // 4 + 8 tokens
}

TEST(Unified, PromptLogprobsAreComputedFewAtATimeWithoutChunkingToo) {
    SchedulerOptions o = options(Flavour::kUnified, 64, -1);
    o.prompt_logprob_rows = 10;
    Scheduler scheduler(o);
    Request wants = request(1, 20);
    wants.sampling.prompt_logprobs_from = 0;
    ASSERT_TRUE(scheduler.add(wants).ok());
    Shapes seen;
    while (seen.size() < 3) {
        const Plan plan = scheduler.plan();
        ASSERT_FALSE(plan.empty());
        for (const Shape& shape : shapes(plan.prefill)) seen.push_back(shape);
        end_step(scheduler, plan);
    }
    EXPECT_EQ(seen, (Shapes{{1, 0, 8, false}, {1, 8, 8, false}, {1, 16, 4, true}}));
}

TEST(Unified, PromptLogprobsAreComputedFewAtATimeAndNotCached) {
    SchedulerOptions o = options(Flavour::kUnified, 64, 64);
    o.prefix_cache = true;
    o.prompt_logprob_rows = 10;
    Scheduler scheduler(o);
    Request plain = request(1, 40);
    ASSERT_TRUE(scheduler.add(plain).ok());
    while (!scheduler.idle()) end_step(scheduler, scheduler.plan());
    Request wants = request(2, 40), other = request(3, 40);
    wants.sampling.prompt_logprobs_from = other.sampling.prompt_logprobs_from = 21;  // from row 20 on
    ASSERT_TRUE(scheduler.add(wants).ok());
    ASSERT_TRUE(scheduler.add(other).ok());
    Shapes seen;
    while (seen.size() < 6) {
        const Plan plan = scheduler.plan();
        ASSERT_FALSE(plan.empty());
        for (const Shape& shape : shapes(plan.prefill)) seen.push_back(shape);
        end_step(scheduler, plan);
    }
    // Pages of 4; 20 tokens are cached; 10 rows a step, so that two pages fit.
    EXPECT_EQ(seen, (Shapes{{2, 20, 8, false}, {2, 28, 8, false}, {2, 36, 4, true},
                            {3, 20, 4, false}, {3, 24, 8, false}, {3, 32, 8, true}}));
}

TEST(Unified, DraftsAdvanceBySeveral) {
    SchedulerOptions o = options(Flavour::kUnified, 64);
    o.num_drafts = 2;
    Scheduler scheduler(o);
    ASSERT_TRUE(scheduler.add(request(1, 5, 5)).ok());
    Plan plan = scheduler.plan();
    EXPECT_TRUE(scheduler.plan().empty());
    end_step(scheduler, plan);
    plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.decode), (Shapes{{1, 5, 1, true}}));  // nothing is drafted yet
    Sequence& sequence = *plan.decode[0].sequence;
    EXPECT_EQ(sequence.blocks.size(), 2u);  // position 5, and 6 and 7 for drafting
    sequence.drafts = {8, 9};
    end_step(scheduler, plan);
    plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.decode), (Shapes{{1, 6, 3, true}}));
    EXPECT_EQ(sequence.blocks.size(), 3u);  // no more than the 10 tokens it may have
    const std::vector<int32_t> two = {8, 1};
    TokenOut out = scheduler.on_result(plan, std::vector<Advance>{{&sequence, two}})[0];
    EXPECT_EQ(out.tokens, two);
    EXPECT_EQ(out.position, 2);
    EXPECT_EQ(out.num_decode_steps, 2);
    EXPECT_EQ(scheduler.judge(sequence, 1, 2), FinishReason::kStop);
    EXPECT_EQ(scheduler.judge(sequence, 1, 3), FinishReason::kLength);
    EXPECT_EQ(scheduler.judge(sequence, 0, 3), FinishReason::kNone);
    plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.decode), (Shapes{{1, 8, 1, true}}));  // only one more may come
    const std::vector<int32_t> stop = {2, 9};
    out = scheduler.on_result(plan, std::vector<Advance>{{&sequence, stop}})[0];
    EXPECT_EQ(out.finish, FinishReason::kStop);
    EXPECT_EQ(out.tokens, std::vector<int32_t>{2});
}

TEST(DraftLength, FollowsWhatIsAcceptedAndComesBack) {
    DraftLength length;
    const DraftCost cost{.free_rows = 8, .layer_share = 0.05};
    EXPECT_EQ(length.next(4, cost, 1), 4);
    EXPECT_EQ(length.next(2, cost, 1), 2);
    for (int step = 0; step < 20; ++step) length.checked(2, 1);
    EXPECT_EQ(length.next(2, cost, 1), 1);
    for (int step = 0; step < 20; ++step) length.checked(1, 0);
    EXPECT_EQ(length.next(2, cost, 1), 0);
    int idle = 0;
    while (length.next(2, cost, 1) == 0) length.checked(0, 0), ++idle;
    EXPECT_GT(idle, 2);
    EXPECT_LT(idle, 50);
}

TEST(DraftLength, ALargerBatchDraftsLess) {
    DraftLength length;
    const DraftCost cost{.free_rows = 8, .layer_share = 0.05};
    EXPECT_EQ(length.next(4, cost, 1), 4);
    int last = 4;
    for (int requests = 1; requests <= 1024; requests *= 2) {
        const int now = length.next(4, cost, requests);
        EXPECT_LE(now, last);
        last = now;
    }
    EXPECT_EQ(last, 0);
}

}  // namespace
}  // namespace aerie::schedule
