// What the prefix cache, the policies and mixed steps change in the plans.
#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/plan_shapes.h"

namespace aerie::schedule {
namespace {

SchedulerOptions cached(Flavour flavour, int num_blocks, int chunk = 64) {
    SchedulerOptions result = options(flavour, num_blocks, chunk);
    result.prefix_cache = true;
    return result;
}

// Tokens base, base + 1, ….
Request counting(RequestId id, int num_tokens, int base = 100, int max_new = 1) {
    Request result = request(id, num_tokens, max_new);
    for (int i = 0; i < num_tokens; ++i) result.prompt[i] = base + i;
    return result;
}

void run_to_end(Scheduler& scheduler) {
    for (Plan plan = scheduler.plan(); !plan.empty(); plan = scheduler.plan())
        end_step(scheduler, plan);
}

TEST(Prefix, AHitStartsBehindTheCachedPages) {
    Scheduler scheduler(cached(Flavour::kUnified, 64));
    ASSERT_TRUE(scheduler.add(counting(1, 10)).ok());
    run_to_end(scheduler);
    EXPECT_EQ(scheduler.counts().used_tokens, 0);
    EXPECT_EQ(scheduler.counts().evictable_tokens, 2 * kPage);
    EXPECT_EQ(scheduler.counts().free_tokens, 64 * kPage);
    ASSERT_TRUE(scheduler.add(counting(2, 11)).ok());
    const Plan plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{2, 8, 3, true}}));
    EXPECT_EQ(plan.prefill[0].sequence->num_cached, 8);
    EXPECT_EQ(scheduler.counts().used_tokens, 3 * kPage);
    EXPECT_EQ(end_step(scheduler, plan)[0].cached_tokens, 8);
}

TEST(Prefix, TheLastTokenIsAlwaysComputed) {
    Scheduler scheduler(cached(Flavour::kUnified, 64));
    for (RequestId id = 1; id <= 2; ++id) {
        ASSERT_TRUE(scheduler.add(counting(id, 8)).ok());
        const Plan plan = scheduler.plan();
        EXPECT_EQ(shapes(plan.prefill), (Shapes{{id, id == 1 ? 0 : 4, id == 1 ? 8 : 4, true}}));
        end_step(scheduler, plan);
    }
    EXPECT_EQ(scheduler.counts().used_tokens, 0);
    EXPECT_EQ(scheduler.counts().evictable_tokens, 8);  // the second's own page is free again
}

TEST(Prefix, OutputIsCachedToo) {
    Scheduler scheduler(cached(Flavour::kUnified, 64));
    ASSERT_TRUE(scheduler.add(counting(1, 6, 100, 7)).ok());
    run_to_end(scheduler);  // 6 + 7 tokens, the last without KV
    Request next = counting(2, 6);
    next.prompt.insert(next.prompt.end(), 7, 9);
    next.prompt.push_back(50);
    ASSERT_TRUE(scheduler.add(next).ok());
    EXPECT_EQ(shapes(scheduler.plan().prefill), (Shapes{{2, 12, 2, true}}));
}

TEST(Prefix, SaltsAreApart) {
    Scheduler scheduler(cached(Flavour::kUnified, 64));
    ASSERT_TRUE(scheduler.add(counting(1, 9)).ok());
    run_to_end(scheduler);
    Request salted = counting(2, 9);
    salted.cache_salt = "s";
    ASSERT_TRUE(scheduler.add(salted).ok());
    EXPECT_EQ(shapes(scheduler.plan().prefill), (Shapes{{2, 0, 9, true}}));
}

TEST(Prefix, FlushForgetsAllBetweenRequests) {
    Scheduler scheduler(cached(Flavour::kUnified, 64));
    ASSERT_TRUE(scheduler.add(counting(1, 9)).ok());
    EXPECT_FALSE(scheduler.flush_cache());
    run_to_end(scheduler);
    EXPECT_TRUE(scheduler.flush_cache());
    EXPECT_EQ(scheduler.counts().evictable_tokens, 0);
    ASSERT_TRUE(scheduler.add(counting(2, 9)).ok());
    EXPECT_EQ(shapes(scheduler.plan().prefill), (Shapes{{2, 0, 9, true}}));
}

// What is cached is evicted where a request needs its blocks, the oldest first.
TEST(Prefix, AdmissionEvictsOnDemand) {
    Scheduler scheduler(cached(Flavour::kUnified, 8));  // 32 tokens
    ASSERT_TRUE(scheduler.add(counting(1, 13, 100)).ok());
    run_to_end(scheduler);
    ASSERT_TRUE(scheduler.add(counting(2, 13, 500)).ok());
    run_to_end(scheduler);
    EXPECT_EQ(scheduler.counts().evictable_tokens, 24);
    ASSERT_TRUE(scheduler.add(counting(3, 25, 900)).ok());
    const Plan plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{3, 0, 25, true}}));
    EXPECT_EQ(scheduler.counts().evictable_tokens, 4);
    end_step(scheduler, plan);
    ASSERT_TRUE(scheduler.add(counting(4, 13, 500)).ok());
    EXPECT_EQ(shapes(scheduler.plan().prefill), (Shapes{{4, 4, 9, true}}));
}

// Two that begin with the same 32 tokens: the second waits until they are in the cache. Others pass.
TEST(Prefix, WhatTwoShareIsComputedOnce) {
    Scheduler scheduler(cached(Flavour::kUnified, 256, 40));
    ASSERT_TRUE(scheduler.add(counting(1, 60)).ok());
    ASSERT_TRUE(scheduler.add(counting(2, 58)).ok());
    ASSERT_TRUE(scheduler.add(counting(3, 10, 900)).ok());
    ASSERT_TRUE(scheduler.add(counting(4, 32)).ok());  // 31 tokens that could be cached: too few
    Plan plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{1, 0, 40, false}}));
    end_step(scheduler, plan);
    plan = scheduler.plan();  // 2 could begin behind 40 tokens, and shares 17 more: too few to wait
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{1, 40, 20, true}, {2, 40, 18, true}}));
    end_step(scheduler, plan);
    run_to_end(scheduler);
    ASSERT_TRUE(scheduler.flush_cache());

    ASSERT_TRUE(scheduler.add(counting(5, 36)).ok());
    ASSERT_TRUE(scheduler.add(counting(6, 36)).ok());
    ASSERT_TRUE(scheduler.add(counting(7, 3, 900)).ok());
    plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{5, 0, 36, true}, {7, 0, 3, true}}));
    end_step(scheduler, plan);
    plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{6, 32, 4, true}}));
}

TEST(Prefix, LpmTakesTheLongestPrefixFirst) {
    SchedulerOptions o = cached(Flavour::kUnified, 256, 12);
    o.policy.policy = Policy::kLpm;
    Scheduler scheduler(o);
    ASSERT_TRUE(scheduler.add(counting(1, 40)).ok());
    run_to_end(scheduler);
    ASSERT_TRUE(scheduler.add(counting(2, 9, 900)).ok());
    ASSERT_TRUE(scheduler.add(counting(3, 17)).ok());
    ASSERT_TRUE(scheduler.add(counting(4, 39)).ok());
    const Plan plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.prefill),
              (Shapes{{4, 36, 3, true}, {3, 16, 1, true}, {2, 0, 8, false}}));
}

TEST(Prefix, PriorityComesFirstWithoutACache) {
    SchedulerOptions o = options(Flavour::kUnified, 64);
    o.policy.policy = Policy::kPriority;
    Scheduler scheduler(o);
    for (RequestId id = 1; id <= 3; ++id) {
        Request r = request(id, 4);
        r.priority = id == 2 ? 7 : 0;
        ASSERT_TRUE(scheduler.add(r).ok());
    }
    EXPECT_EQ(shapes(scheduler.plan().prefill),
              (Shapes{{2, 0, 4, true}, {1, 0, 4, true}, {3, 0, 4, true}}));
}

// A stream of requests with a longer cached prefix, or more priority, does not keep one waiting for
// ever.
TEST(Prefix, NobodyStarves) {
    for (const Policy policy : {Policy::kLpm, Policy::kDfsWeight, Policy::kPriority, Policy::kLof}) {
        SchedulerOptions o = cached(Flavour::kUnified, 64, 16);
        o.max_running_requests = 1;
        o.policy.policy = policy;
        Scheduler scheduler(o);
        ASSERT_TRUE(scheduler.add(counting(1, 20, 100, 2)).ok());
        run_to_end(scheduler);
        ASSERT_TRUE(scheduler.add(counting(2, 9, 900)).ok());
        RequestId next = 3;
        int num_overtaken = 0;
        for (bool started = false; !started; ++num_overtaken) {
            ASSERT_LE(num_overtaken, kMaxOvertaken + o.max_running_requests);
            for (; next < RequestId(num_overtaken) + 6; ++next) {
                Request favoured = counting(next, 20, 100, 2);
                favoured.priority = 1;
                ASSERT_TRUE(scheduler.add(favoured).ok());
            }
            const Plan plan = scheduler.plan();
            started = plan.prefill.at(0).sequence->id == 2;
            end_step(scheduler, plan);
            if (!started) end_step(scheduler, scheduler.plan());  // its second token
        }
        EXPECT_EQ(num_overtaken, kMaxOvertaken + 1);
    }
}

TEST(Mixed, PromptsAndNextTokensShareAStep) {
    SchedulerOptions o = options(Flavour::kUnified, 64, 16);
    o.mixed_chunks = true;
    Scheduler scheduler(o);
    ASSERT_TRUE(scheduler.add(request(1, 5)).ok());
    ASSERT_TRUE(scheduler.add(request(2, 5)).ok());
    end_step(scheduler, scheduler.plan());
    ASSERT_TRUE(scheduler.add(request(3, 30)).ok());
    Plan plan = scheduler.plan();  // 14 are left for the prompt: three pages
    EXPECT_EQ(shapes(plan.decode), (Shapes{{1, 5, 1, true}, {2, 5, 1, true}}));
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{3, 0, 12, false}}));
    EXPECT_EQ(end_step(scheduler, plan).size(), 2u);
    plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{3, 12, 12, false}}));
    end_step(scheduler, plan);
    plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{3, 24, 6, true}}));
    EXPECT_EQ(end_step(scheduler, plan).size(), 3u);
}

// Where the running requests leave less than a page of the chunk, prompts have steps of their own.
TEST(Mixed, ManyRunningDoNotStopPrompts) {
    SchedulerOptions o = options(Flavour::kUnified, 64, 8);
    o.mixed_chunks = true;
    Scheduler scheduler(o);
    for (RequestId id = 1; id <= 5; ++id) {
        ASSERT_TRUE(scheduler.add(request(id, 1)).ok());
        end_step(scheduler, scheduler.plan());
    }
    ASSERT_TRUE(scheduler.add(request(6, 8)).ok());
    const Plan plan = scheduler.plan();
    EXPECT_TRUE(plan.decode.empty());
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{6, 0, 8, true}}));
}

TEST(DecodePrefix, AnOfferLacksWhatIsCached) {
    Scheduler scheduler(cached(Flavour::kDecode, 64));
    ASSERT_TRUE(scheduler.add(counting(1, 10, 100, 1)).ok());
    scheduler.announced(1);
    ASSERT_EQ(scheduler.take_offers().size(), 1u);
    EXPECT_EQ(scheduler.find(1)->num_cached, 0);
    ASSERT_TRUE(scheduler.start_decode(1, 9).ok());
    ASSERT_TRUE(scheduler.add(counting(2, 14, 100, 3)).ok());
    scheduler.announced(2);
    ASSERT_EQ(scheduler.take_offers().size(), 1u);
    EXPECT_EQ(scheduler.find(2)->num_cached, 8);
    EXPECT_EQ(scheduler.find(2)->blocks.size(), 4u);
    Result<TokenOut> first = scheduler.start_decode(2, 9, 12);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(first->cached_tokens, 12);
}

TEST(DecodePrefix, AShortTailIsComputedHere) {
    Scheduler scheduler(cached(Flavour::kDecode, 64, 8));
    ASSERT_TRUE(scheduler.add(counting(1, 12, 100, 1)).ok());
    scheduler.announced(1);
    ASSERT_EQ(scheduler.take_offers().size(), 1u);
    EXPECT_FALSE(scheduler.start_tail(1).ok());  // 12 tokens, a chunk is 8
    ASSERT_TRUE(scheduler.start_decode(1, 9).ok());
    EXPECT_FALSE(scheduler.start_tail(1).ok());
    ASSERT_TRUE(scheduler.add(counting(2, 14, 100, 3)).ok());
    scheduler.announced(2);
    ASSERT_EQ(scheduler.take_offers().size(), 1u);
    ASSERT_TRUE(scheduler.start_tail(2).ok());
    EXPECT_FALSE(scheduler.is_held(2));
    const Plan plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{2, 12, 2, true}}));
    const TokenOut first = end_step(scheduler, plan)[0];
    EXPECT_EQ(first.position, 0);
    EXPECT_EQ(first.cached_tokens, 12);
    EXPECT_EQ(shapes(scheduler.plan().decode), (Shapes{{2, 14, 1, true}}));
}

// What a decode replica retracts is in its cache: little is left to compute when it comes back.
TEST(DecodePrefix, ARetractedOneFindsItsKv) {
    SchedulerOptions o = cached(Flavour::kDecode, 10, 8);
    o.decode_reserve = 1;
    Scheduler scheduler(o);  // 40 tokens
    for (RequestId id = 1; id <= 2; ++id) {
        ASSERT_TRUE(scheduler.add(counting(id, 10, 100 * static_cast<int>(id), 24)).ok());
        scheduler.announced(id);
        ASSERT_EQ(scheduler.take_offers().size(), 1u);
        ASSERT_TRUE(scheduler.start_decode(id, 9).ok());
    }
    Plan plan = scheduler.plan();
    for (; plan.retracted.empty(); plan = scheduler.plan()) end_step(scheduler, plan);
    const RequestId id = plan.retracted[0].id;
    const int num_tokens = static_cast<int>(plan.retracted[0].tokens.size());
    scheduler.abort(id == 1 ? 2 : 1);
    end_step(scheduler, plan);
    scheduler.announced(id);
    ASSERT_EQ(scheduler.take_offers().size(), 1u);
    EXPECT_GE(scheduler.find(id)->num_cached, num_tokens - 2 * kPage);
    EXPECT_TRUE(scheduler.start_tail(id).ok());
    EXPECT_EQ(end_step(scheduler, scheduler.plan())[0].position,
              plan.retracted[0].num_output);
}

TEST(PrefillPrefix, BlocksAreHeldUntilReleaseAndCachedAfterwards) {
    Scheduler scheduler(cached(Flavour::kPrefill, 64, 8));
    ASSERT_TRUE(scheduler.add(counting(1, 13)).ok());
    scheduler.may_start(1);
    end_step(scheduler, scheduler.plan());
    end_step(scheduler, scheduler.plan());
    EXPECT_EQ(scheduler.counts().num_prefilled, 1);
    EXPECT_EQ(scheduler.counts().used_tokens, 4 * kPage);
    ASSERT_TRUE(scheduler.add(counting(2, 14)).ok());
    scheduler.may_start(2);
    const Plan plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{2, 12, 2, true}}));
    EXPECT_EQ(scheduler.counts().used_tokens, 5 * kPage);
    scheduler.release(1);
    EXPECT_EQ(scheduler.counts().used_tokens, 4 * kPage);
    EXPECT_EQ(end_step(scheduler, plan)[0].cached_tokens, 12);
    scheduler.release(2);
    EXPECT_EQ(scheduler.counts().used_tokens, 0);
    EXPECT_EQ(scheduler.counts().evictable_tokens, 3 * kPage);
}

}  // namespace
}  // namespace aerie::schedule
