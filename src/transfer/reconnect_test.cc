// A connection that breaks and comes back, of the same two lives: what it took along is said again, so
// that neither side waits for the other for ever.
#include "transfer/testing/two_sides.h"

namespace aerie::transfer {
namespace {

class Reconnect : public TwoSides {
  protected:
    // What is held is lost with the connection.
    void break_off() {
        p_->lose_all();
        d_->lose_all();
        p_->disconnect(1, p_->peer_connection(1));
    }
    void come_back() { ASSERT_TRUE(p_->set_peer(1, epoch_, d_->address()).ok()); }
};

TEST_F(Reconnect, AnAnnouncementThatIsLostEndsTheAttemptOnBothSides) {
    p_->hold(proto::KvMessage::kAnnounce);
    begin(Mode::kPush);
    ASSERT_EQ(p_->num_held(proto::KvMessage::kAnnounce), 1u);
    break_off();
    next_p(P::kCancelled);
    next_p(P::kReleased);
    expect_quiet();
    come_back();
    const DecodeEvent cancelled = next_d(D::kCancelled);
    EXPECT_EQ(cancelled.attempt, 1u);
    EXPECT_EQ(cancelled.why, "the connection to the decode host node-1 was lost");
    expect_quiet();
}

TEST_F(Reconnect, WhatIsPublishedAndLostEndsTheAttemptOnBothSides) {
    p_->hold(proto::KvMessage::kDone);
    begin(Mode::kPull);
    done();
    ASSERT_EQ(p_->num_held(proto::KvMessage::kDone), 1u);
    break_off();
    next_p(P::kCancelled);
    next_p(P::kReleased);
    come_back();
    next_d(D::kCancelled);
    expect_quiet();
}

TEST_F(Reconnect, ACancelThatIsLostIsSaidAgainEachTime) {
    begin(Mode::kPush);
    next_d(D::kAnnounced);
    p_->hold(proto::KvMessage::kCancel);
    prefill_->cancel(kId, 1, 0, "the step failed");
    next_p(P::kReleased);
    for (int round = 0; round < 2; ++round) {
        break_off();
        if (round == 0) p_->hold(proto::KvMessage::kCancel);
        come_back();
        if (round == 0) {
            EXPECT_EQ(p_->num_held(proto::KvMessage::kCancel), 1u);
        }
    }
    EXPECT_EQ(next_d(D::kCancelled).why, "the step failed");
    expect_quiet();
}

// Decode was not connected when the attempt began: it is told once it is.
TEST_F(Reconnect, WhatBeginsWithoutAConnectionIsCancelledOnceThereIsOne) {
    break_off();
    begin(Mode::kPush);
    next_p(P::kCancelled);
    next_p(P::kReleased);
    prefill_->cancel(8, 3, 0, "never begun");
    come_back();
    std::vector<DecodeEvent> events;
    EXPECT_TRUE(eventually([&] {
        for (auto& event : decode_->poll()) events.push_back(std::move(event));
        return events.size() == 2;
    }));
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[0].id, kId);
    EXPECT_EQ(events[1].why, "never begun");
    expect_quiet();
}

// Both have heard of the attempt: each ends it, and what is said again changes nothing.
TEST_F(Reconnect, AnOfferedAttemptEndsOnceOnEachSide) {
    push_until_offered();
    break_off();
    next_p(P::kCancelled);
    next_p(P::kReleased);
    next_d(D::kCancelled);
    come_back();
    expect_quiet();
    decode_->cancel(kId, 1, 0, "it was lost");
    next_d(D::kReleased);
    expect_quiet();
    prefill_->begin(kId, 2, 0, kTokens, Mode::kPush);
    EXPECT_EQ(next_d(D::kAnnounced).attempt, 2u);
}

}  // namespace
}  // namespace aerie::transfer
