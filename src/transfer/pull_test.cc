// Pull, through every state: what arrives, and that wrong bytes are never taken for right ones.
#include "transfer/testing/two_sides.h"

namespace aerie::transfer {
namespace {

class Pull : public TwoSides {
  protected:
    void cancel_on_decode() { decode_->cancel(kId, 1, 0, "the client is gone"); }
    void cancel_on_prefill() { prefill_->cancel(kId, 1, 0, "the client is gone"); }
    void part() { d_->drop_peer(0, epoch_); }
    void end_lease() { ASSERT_TRUE(prefill_->end_newest_lease("it has to go")); }
};

TEST_F(Pull, ReadsWhatIsPublished) {
    for (const int prefill_cp : {1, 2}) {
        for (const int decode_cp : {1, 2, 3}) {
            start(30, prefill_cp, decode_cp);
            offer(pull_until_published());
            next_p(P::kAcked);
            EXPECT_EQ(next_d(D::kReady).first.tokens, std::vector<int32_t>{42});
            expect_arrived(0);
            decode_->acknowledge(kId);
            expect_quiet();
        }
    }
    const double each = kLayers * kTokens * kTokenBytes;
    EXPECT_EQ(metric("sglang:ae_sep_kv_transfer_bytes"), 6 * each);
    EXPECT_EQ(metric("sglang:ae_sep_passive_transfer_count"), 6);
    EXPECT_EQ(metric("sglang:ae_sep_active_transfer_count"), 0);
}

TEST_F(Pull, LeavesWhatDecodeHasAlone) {
    offer(pull_until_published(), 8);
    next_p(P::kAcked);
    next_d(D::kReady);
    expect_arrived(8);
    EXPECT_EQ(metric("sglang:ae_sep_kv_transfer_bytes"), kLayers * (kTokens - 8) * kTokenBytes);
}

TEST_F(Pull, NothingIsPushed) {
    begin(Mode::kPull);
    push_all();
    expect_untouched();
}

TEST_F(Pull, ALeaseThatRunsOutBeforeTheReadFreesBothSides) {
    start(0.02);
    const DecodeEvent announced = pull_until_published();
    next_p(P::kCancelled);
    next_p(P::kReleased);
    EXPECT_EQ(next_d(D::kLeaseRanOut).attempt, announced.attempt);
    expect_quiet();
}

TEST_F(Pull, AnOfferThatComesAfterTheLeaseHasRunOutIsForgotten) {
    start(0.02);
    const DecodeEvent announced = pull_until_published();
    next_d(D::kLeaseRanOut);
    offer(announced);  // the leader had it in its hands
    next_p(P::kCancelled);
    next_p(P::kReleased);
    prefill_->begin(kId, announced.attempt + 1, 0, kTokens, Mode::kPush);
    const DecodeEvent again = next_d(D::kAnnounced);
    offer(again);
    EXPECT_EQ(next_p(P::kOffered).attempt, again.attempt);
}

TEST_F(Pull, ALeaseThatEndsDuringTheReadMakesItWorthless) {
    pull_until_reading();
    end_lease();
    next_p(P::kCancelled);
    next_p(P::kReleased);
    expect_quiet();  // decode's blocks are being written
    d_->let_copies_go();
    next_d(D::kLeaseRanOut);
    expect_quiet();
}

TEST_F(Pull, ALeaseThatEndsBeforeTheReadIsConfirmedMakesItWorthless) {
    pull_until_read();
    p_->hold(proto::KvMessage::kCancel);  // that the lease ended is heard late
    end_lease();
    next_p(P::kCancelled);
    next_p(P::kReleased);
    d_->release(proto::KvMessage::kRead);
    next_d(D::kLeaseRanOut);
    p_->release(proto::KvMessage::kCancel);
    expect_quiet();
}

TEST_F(Pull, TheNewestLeaseEndsFirst) {
    pull_until_published();
    prefill_->begin(kId + 1, 1, 0, kTokens, Mode::kPull);
    prefill_->done(kId + 1, first(), from_);
    ASSERT_TRUE(prefill_->end_newest_lease("it has to go"));
    std::vector<RequestId> ended;
    EXPECT_TRUE(eventually([&] {
        for (const auto& event : prefill_->poll()) ended.push_back(event.id);
        return ended.size() == 2;
    }));
    EXPECT_EQ(ended, (std::vector<RequestId>{kId + 1, kId + 1}));
    ASSERT_TRUE(prefill_->end_newest_lease("it has to go"));
    EXPECT_FALSE(prefill_->end_newest_lease("it has to go"));
}

TEST_F(Pull, DecodeCancelsInEachState) {
    pull_until_published();
    cancel_on_decode();
    next_p(P::kCancelled);
    next_p(P::kReleased);
    expect_quiet();

    start(30);
    pull_until_reading();
    cancel_on_decode();
    next_p(P::kCancelled);
    next_p(P::kReleased);
    expect_quiet();
    d_->let_copies_go();
    next_d(D::kReleased);
    expect_quiet();

    start(30);
    pull_until_read();
    cancel_on_decode();
    next_d(D::kReleased);
    next_p(P::kCancelled);
    next_p(P::kReleased);
    d_->release(proto::KvMessage::kRead);
    expect_quiet();
}

TEST_F(Pull, PrefillCancelsInEachState) {
    pull_until_published();
    cancel_on_prefill();
    next_p(P::kReleased);
    next_d(D::kCancelled);
    cancel_on_decode();
    expect_quiet();

    start(30);
    pull_until_reading();
    cancel_on_prefill();
    next_p(P::kReleased);
    next_d(D::kCancelled);
    cancel_on_decode();
    expect_quiet();
    d_->let_copies_go();
    next_d(D::kReleased);
    expect_quiet();

    start(30);
    pull_until_read();
    cancel_on_prefill();
    next_p(P::kReleased);
    next_d(D::kCancelled);
    cancel_on_decode();
    next_d(D::kReleased);
    d_->release(proto::KvMessage::kRead);
    expect_quiet();
}

TEST_F(Pull, TheHostsPartInEachState) {
    pull_until_published();
    part();
    next_p(P::kCancelled);
    next_p(P::kReleased);
    EXPECT_EQ(next_d(D::kCancelled).why, "the connection to the prefill host node-0 was lost");
    cancel_on_decode();
    expect_quiet();

    start(30);
    pull_until_reading();
    part();
    next_p(P::kCancelled);
    next_p(P::kReleased);
    next_d(D::kCancelled);
    cancel_on_decode();
    expect_quiet();
    d_->let_copies_go(true);
    next_d(D::kReleased);
    expect_quiet();

    start(30);
    pull_until_read();
    part();
    next_p(P::kCancelled);
    next_p(P::kReleased);
    next_d(D::kCancelled);
    cancel_on_decode();
    next_d(D::kReleased);
    d_->release(proto::KvMessage::kRead);
    expect_quiet();
}

TEST_F(Pull, AFailedReadIsTold) {
    pull_until_reading();
    d_->let_copies_go(true);
    EXPECT_NE(next_d(D::kCancelled).why.find("the copy was made to fail"), std::string::npos);
    cancel_on_decode();
    next_d(D::kReleased);
    next_p(P::kCancelled);
    next_p(P::kReleased);
    expect_quiet();
}

TEST_F(Pull, BindsLateWhereNoOfferHasCome) {
    begin(Mode::kPush);
    const DecodeEvent announced = next_d(D::kAnnounced);
    EXPECT_TRUE(prefill_->pull_instead(kId));
    push_all();
    expect_untouched();
    offer(announced);  // too late: prefill does not answer it
    expect_quiet();
    done();
    next_p(P::kAcked);
    next_d(D::kReady);
    expect_arrived(0);
}

TEST_F(Pull, DoesNotBindLateWhereTheOfferHasCome) {
    push_until_offered();
    EXPECT_FALSE(prefill_->pull_instead(kId));
    push_all();
    done();
    next_d(D::kReady);
    expect_arrived(0);
    EXPECT_FALSE(prefill_->pull_instead(kId + 1));
}

// What was published overtakes the announcement: the leader hears of both.
TEST_F(Pull, TheAnnouncementMayComeLast) {
    p_->hold(proto::KvMessage::kAnnounce);
    begin(Mode::kPush);
    EXPECT_TRUE(prefill_->pull_instead(kId));
    done();
    offer(next_d(D::kAnnounced));
    next_p(P::kAcked);
    next_d(D::kReady);
    p_->release(proto::KvMessage::kAnnounce);
    EXPECT_EQ(next_d(D::kAnnounced).attempt, 1u);
    expect_arrived(0);
}

TEST_F(Pull, AReadOfAnUnknownAttemptIsNotConfirmed) {
    p_->hold(proto::KvMessage::kConfirm);
    proto::KvMessage message;
    message.mutable_read()->set_id(99);
    message.mutable_read()->set_attempt(3);
    d_->send_raw({0, comm::kv_port(false, 0)}, 0, message);
    EXPECT_TRUE(eventually([&] { return p_->num_held(proto::KvMessage::kConfirm) == 1; }));
    p_->release(proto::KvMessage::kConfirm);
    expect_quiet();
}

TEST_F(Pull, ALengthThatDoesNotAgreeIsTold) {
    decode_->offer(pull_until_published(), kTokens - 1, 0, to_);
    EXPECT_NE(next_d(D::kCancelled).why.find("KV of 14 tokens, expected 13"), std::string::npos);
    cancel_on_decode();
    next_d(D::kReleased);
    expect_untouched();
}

}  // namespace
}  // namespace aerie::transfer
