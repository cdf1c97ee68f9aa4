// Prefill and decode replicas: announcements, offers, holds and retraction.
#include <gtest/gtest.h>

#include "schedule/plan_shapes.h"

namespace aerie::schedule {
namespace {

TEST(Prefill, StartsOnlyWithAnOfferAndBlocksNobody) {
    Scheduler scheduler(options(Flavour::kPrefill, 64));
    ASSERT_TRUE(scheduler.add(request(1, 20)).ok());
    ASSERT_TRUE(scheduler.add(request(2, 5)).ok());
    EXPECT_EQ(scheduler.take_announcements(), (std::vector<RequestId>{1, 2}));
    EXPECT_TRUE(scheduler.take_announcements().empty());
    EXPECT_TRUE(scheduler.plan().empty());
    scheduler.may_start(2);
    Plan plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{2, 0, 5, true}}));
    scheduler.may_start(1);
    const Plan next = scheduler.plan();
    EXPECT_EQ(shapes(next.prefill), (Shapes{{1, 0, 16, false}}));
    const TokenOut out = end_step(scheduler, plan, 2)[0];
    EXPECT_EQ(out.finish, FinishReason::kNone);  // the decode replica judges
    EXPECT_EQ(scheduler.counts().num_prefilled, 1);
    EXPECT_TRUE(scheduler.is_held(2));
    EXPECT_EQ(scheduler.counts().used_tokens, 7 * kPage);
    scheduler.release(2);
    EXPECT_EQ(scheduler.counts().used_tokens, 5 * kPage);
    EXPECT_FALSE(scheduler.is_held(2));
    scheduler.abort(1);
    EXPECT_TRUE(scheduler.is_held(1));  // pushes may be under way
    end_step(scheduler, next);
    EXPECT_EQ(scheduler.counts().used_tokens, 5 * kPage);
    scheduler.release(1);
    EXPECT_TRUE(scheduler.idle());
    EXPECT_EQ(scheduler.counts().used_tokens, 0);
}

TEST(Prefill, AnnouncesTwoChunksForEachDecodeReplica) {
    Scheduler scheduler(options(Flavour::kPrefill, 64, 8));
    for (RequestId id = 1; id <= 6; ++id) {
        Request r = request(id, 9);
        r.decode_replica = id == 6 ? 1 : 0;
        ASSERT_TRUE(scheduler.add(r).ok());
    }
    EXPECT_EQ(scheduler.take_announcements(), (std::vector<RequestId>{1, 2, 6}));
    Request back = request(7, 9);
    ASSERT_TRUE(scheduler.add(back, 3).ok());  // retracted: at once, and first
    EXPECT_EQ(scheduler.take_announcements(), (std::vector<RequestId>{7}));
    scheduler.may_start(1);
    scheduler.may_start(7);
    Plan plan = scheduler.plan();
    EXPECT_EQ(plan.prefill[0].sequence->id, 7u);
    end_step(scheduler, plan);
    plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.prefill), (Shapes{{7, 8, 1, true}, {1, 0, 4, false}}));
    EXPECT_EQ(scheduler.take_announcements(), (std::vector<RequestId>{3}));
}

TEST(Decode, OffersInOrderAndStarts) {
    Scheduler scheduler(options(Flavour::kDecode, 8));  // 32 tokens
    for (RequestId id = 1; id <= 3; ++id) ASSERT_TRUE(scheduler.add(request(id, 6, 8)).ok());
    scheduler.announced(2);
    scheduler.announced(1);
    EXPECT_EQ(scheduler.take_offers(), (std::vector<RequestId>{2}));  // then 6+8+4 > 24-8
    EXPECT_EQ(scheduler.find(2)->blocks.size(), 2u);
    EXPECT_EQ(scheduler.counts().num_offered, 1);
    EXPECT_EQ(scheduler.counts().num_queued, 1);
    EXPECT_EQ(scheduler.counts().num_waiting, 2);
    EXPECT_FALSE(scheduler.start_decode(1, 9).ok());
    Result<TokenOut> first = scheduler.start_decode(2, 9);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(first->position, 0);
    EXPECT_EQ(first->tokens, std::vector<int32_t>{9});
    Plan plan = scheduler.plan();
    EXPECT_EQ(shapes(plan.decode), (Shapes{{2, 6, 1, true}}));
    EXPECT_EQ(end_step(scheduler, plan)[0].position, 1);
}

TEST(Decode, FirstTokenMayBeTheLast) {
    Scheduler scheduler(options(Flavour::kDecode, 8));
    ASSERT_TRUE(scheduler.add(request(1, 6, 8)).ok());
    scheduler.announced(1);
    ASSERT_EQ(scheduler.take_offers().size(), 1u);
    Result<TokenOut> first = scheduler.start_decode(1, 2);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(first->finish, FinishReason::kStop);
    EXPECT_TRUE(scheduler.idle());
    EXPECT_EQ(scheduler.counts().used_tokens, 0);
}

TEST(Decode, AbortedOfferIsHeldUntilTheWriterIsDone) {
    Scheduler scheduler(options(Flavour::kDecode, 8));
    ASSERT_TRUE(scheduler.add(request(1, 6, 8)).ok());
    scheduler.announced(1);
    ASSERT_EQ(scheduler.take_offers().size(), 1u);
    scheduler.abort(1);
    EXPECT_TRUE(scheduler.is_held(1));
    EXPECT_EQ(scheduler.counts().used_tokens, 2 * kPage);
    EXPECT_FALSE(scheduler.start_decode(1, 9).ok());
    scheduler.release(1);
    EXPECT_EQ(scheduler.counts().used_tokens, 0);
    EXPECT_TRUE(scheduler.idle());
}

TEST(Decode, RetractedKeepsItsPlaceBeforeNewOnes) {
    Scheduler scheduler(options(Flavour::kDecode, 280));  // 1120 tokens: two with 512 in reserve
    for (RequestId id = 1; id <= 3; ++id) ASSERT_TRUE(scheduler.add(request(id, 3, 2000)).ok());
    for (RequestId id = 1; id <= 3; ++id) scheduler.announced(id);
    ASSERT_EQ(scheduler.take_offers(), (std::vector<RequestId>{1, 2}));
    ASSERT_TRUE(scheduler.start_decode(1, 9).ok());
    end_step(scheduler, scheduler.plan());
    ASSERT_TRUE(scheduler.start_decode(2, 9).ok());
    std::vector<Retracted> retracted;
    for (int step = 0; retracted.empty() && step < 2000; ++step) {
        const Plan plan = scheduler.plan();
        retracted = plan.retracted;
        ASSERT_FALSE(plan.empty());
        end_step(scheduler, plan);
        EXPECT_TRUE(scheduler.take_offers().empty());
    }
    ASSERT_EQ(retracted.size(), 1u);
    EXPECT_EQ(retracted[0].id, 2u);
    EXPECT_GT(retracted[0].num_output, 512);
    scheduler.abort(1);
    EXPECT_TRUE(scheduler.take_offers().empty());  // 3 fits, but 2 is before it
    scheduler.announced(2);
    EXPECT_EQ(scheduler.take_offers(), (std::vector<RequestId>{2}));
    const int num_kv = 3 + retracted[0].num_output;
    EXPECT_EQ(scheduler.find(2)->blocks.size(), static_cast<size_t>((num_kv + 3) / 4));
    Result<TokenOut> next = scheduler.start_decode(2, 9);
    ASSERT_TRUE(next.ok());
    EXPECT_EQ(next->position, retracted[0].num_output);
    EXPECT_EQ(shapes(scheduler.plan().decode), (Shapes{{2, num_kv, 1, true}}));
}

// One that runs alone waits for blocks that others hold whose KV has not come.
TEST(Decode, WaitsForOffersToBecomeRetractable) {
    Scheduler scheduler(options(Flavour::kDecode, 280));
    ASSERT_TRUE(scheduler.add(request(1, 3, 2000)).ok());
    ASSERT_TRUE(scheduler.add(request(2, 7, 2000)).ok());
    for (RequestId id = 1; id <= 2; ++id) scheduler.announced(id);
    ASSERT_EQ(scheduler.take_offers().size(), 2u);
    ASSERT_TRUE(scheduler.start_decode(1, 9).ok());
    int steps = 0;
    for (Plan plan = scheduler.plan(); !plan.empty(); plan = scheduler.plan(), ++steps)
        end_step(scheduler, plan);
    EXPECT_EQ(steps, 1120 - 2 * kPage - 3);
    ASSERT_TRUE(scheduler.start_decode(2, 9).ok());
    const Plan plan = scheduler.plan();
    ASSERT_EQ(plan.retracted.size(), 1u);
    EXPECT_EQ(plan.retracted[0].id, 2u);
    EXPECT_EQ(plan.decode.size(), 1u);
}

// Writes of an attempt may end when the next one has begun, or has been computed.
TEST(Handover, ALateReleaseOfAnEarlierAttemptReleasesThatOneAlone) {
    Scheduler scheduler(options(Flavour::kPrefill, 64));
    const Request again = request(1, 8);
    const auto compute = [&](uint32_t attempt) {
        ASSERT_TRUE(scheduler.add(again, 0, attempt).ok());
        ASSERT_EQ(scheduler.take_announcements(), std::vector<RequestId>{1});
        scheduler.may_start(1);
        const Plan plan = scheduler.plan();
        ASSERT_EQ(plan.prefill.size(), 1u);
        end_step(scheduler, plan);
    };
    const int64_t all = scheduler.kv().free_tokens();
    compute(1);
    const int64_t used = all - scheduler.kv().free_tokens();
    ASSERT_GT(used, 0);
    scheduler.abort(1);
    EXPECT_EQ(scheduler.kv().free_tokens(), all - used);  // pushes may be under way
    compute(2);
    EXPECT_EQ(scheduler.kv().free_tokens(), all - 2 * used);
    scheduler.release(1, 1);
    EXPECT_EQ(scheduler.kv().free_tokens(), all - used);
    EXPECT_TRUE(scheduler.is_held(1));
    scheduler.release(1, 1);
    EXPECT_TRUE(scheduler.is_held(1));
    scheduler.release(1, 2);
    EXPECT_EQ(scheduler.kv().free_tokens(), all);
    EXPECT_TRUE(scheduler.idle());
}

}  // namespace
}  // namespace aerie::schedule
