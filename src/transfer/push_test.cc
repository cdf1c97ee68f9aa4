// Push, through every state: what arrives, and that nothing is left behind however it ends.
#include "transfer/testing/two_sides.h"

namespace aerie::transfer {
namespace {

class Push : public TwoSides {
  protected:
    // Decode gives it up: its blocks are free once the prefill side has stopped.
    void cancel_on_decode() { decode_->cancel(kId, 1, 0, "the client is gone"); }
    void cancel_on_prefill() { prefill_->cancel(kId, 1, 0, "the client is gone"); }
    void part() { d_->drop_peer(0, epoch_); }
};

TEST_F(Push, WritesWhatWasOffered) {
    for (const int prefill_cp : {1, 2}) {
        for (const int decode_cp : {1, 2, 3}) {
            start(30, prefill_cp, decode_cp);
            push_until_offered();
            push_all();
            expect_quiet();  // not before the prefill side has said so
            done();
            const DecodeEvent ready = next_d(D::kReady);
            EXPECT_EQ(ready.first.tokens, std::vector<int32_t>{42});
            expect_arrived(0);
            decode_->acknowledge(kId);
            next_p(P::kAcked);
            expect_quiet();
        }
    }
    const double each = kLayers * kTokens * kTokenBytes;
    EXPECT_EQ(metric("sglang:ae_sep_kv_transfer_bytes"), 6 * each);
    EXPECT_EQ(metric("sglang:ae_sep_active_transfer_count"), 6);
}

// In two chunks, the second of which begins in the middle of the prompt.
TEST_F(Push, GoesChunkByChunk) {
    push_until_offered();
    for (const auto& [begin, end] : {std::pair{0, 8}, std::pair{8, kTokens}}) {
        const PushChunk chunk{kId, begin, end - begin, from_};
        prefill_->prepare({&chunk, 1});
        for (int layer = 0; layer < kLayers; ++layer) prefill_->push(0, layer);
    }
    done();
    next_d(D::kReady);
    expect_arrived(0);
}

TEST_F(Push, LeavesWhatDecodeHasAlone) {
    begin(Mode::kPush);
    offer(next_d(D::kAnnounced), 8);
    next_p(P::kOffered);
    push_all();
    done();
    next_d(D::kReady);
    expect_arrived(8);  // the first two blocks are as they were
    EXPECT_EQ(metric("sglang:ae_sep_kv_transfer_bytes"), kLayers * (kTokens - 8) * kTokenBytes);
}

TEST_F(Push, ReadyOnlyWhenEveryWriteHasEnded) {
    push_until_writing();
    done();
    expect_quiet();
    p_->let_copies_go();
    next_d(D::kReady);
    expect_arrived(0);
}

TEST_F(Push, DecodeCancelsBeforeItOffers) {
    begin(Mode::kPush);
    next_d(D::kAnnounced);
    cancel_on_decode();
    EXPECT_EQ(next_p(P::kCancelled).why, "the client is gone");
    next_p(P::kReleased);
    expect_quiet();
}

TEST_F(Push, DecodeCancelsWhatItHasOffered) {
    push_until_offered();
    cancel_on_decode();
    next_p(P::kCancelled);
    next_p(P::kReleased);
    next_d(D::kReleased);
    push_all();
    expect_untouched();
    expect_quiet();
}

TEST_F(Push, DecodeCancelsDuringAWrite) {
    push_until_writing();
    cancel_on_decode();
    next_p(P::kCancelled);
    expect_quiet();  // neither side may use its blocks: the write is under way
    p_->let_copies_go();
    next_p(P::kReleased);
    next_d(D::kReleased);
    expect_quiet();
}

TEST_F(Push, DecodeCancelsWhatIsReady) {
    push_until_ready();
    cancel_on_decode();
    next_d(D::kReleased);
    next_p(P::kCancelled);
    next_p(P::kReleased);
    expect_quiet();
}

TEST_F(Push, PrefillCancelsInEachState) {
    begin(Mode::kPush);
    next_d(D::kAnnounced);
    cancel_on_prefill();
    next_p(P::kReleased);
    EXPECT_EQ(next_d(D::kCancelled).why, "the client is gone");
    expect_quiet();

    start(30);
    push_until_offered();
    cancel_on_prefill();
    next_p(P::kReleased);
    next_d(D::kCancelled);
    cancel_on_decode();  // the leader's answer
    next_d(D::kReleased);
    expect_quiet();

    start(30);
    push_until_writing();
    cancel_on_prefill();
    expect_quiet();
    p_->let_copies_go();
    next_p(P::kReleased);
    next_d(D::kCancelled);
    cancel_on_decode();
    next_d(D::kReleased);
    expect_quiet();

    start(30);
    push_until_ready();
    cancel_on_prefill();  // too late: it is ready, and stays so
    next_p(P::kReleased);
    expect_quiet();
    expect_arrived(0);
    decode_->acknowledge(kId);
    expect_quiet();
}

TEST_F(Push, BothCancelAtOnce) {
    push_until_writing();
    cancel_on_prefill();
    cancel_on_decode();
    expect_quiet();
    p_->let_copies_go();
    next_p(P::kReleased);
    next_d(D::kReleased);
    expect_quiet();
}

TEST_F(Push, TheHostsPartInEachState) {
    begin(Mode::kPush);
    next_d(D::kAnnounced);
    part();
    EXPECT_EQ(next_p(P::kCancelled).why, "the connection to the decode host node-1 was lost");
    next_p(P::kReleased);
    expect_quiet();

    start(30);
    push_until_offered();
    part();
    next_p(P::kCancelled);
    next_p(P::kReleased);
    EXPECT_EQ(next_d(D::kCancelled).why, "the connection to the prefill host node-0 was lost");
    cancel_on_decode();
    next_d(D::kReleased);  // nothing of that life is written any more
    expect_quiet();

    start(30);
    push_until_writing();
    part();
    next_p(P::kCancelled);
    next_d(D::kCancelled);
    expect_quiet();
    p_->let_copies_go(true);
    next_p(P::kReleased);
    cancel_on_decode();
    next_d(D::kReleased);
    expect_untouched();
    expect_quiet();

    start(30);
    push_until_ready();
    part();  // ready is ready
    next_p(P::kCancelled);
    next_p(P::kReleased);
    decode_->acknowledge(kId);
    expect_quiet();
}

TEST_F(Push, AnAnnouncementOfAnEarlierLifeIsNotAnswered) {
    begin(Mode::kPush);
    const DecodeEvent announced = next_d(D::kAnnounced);
    part();
    next_p(P::kCancelled);
    next_p(P::kReleased);
    offer(announced);
    next_d(D::kCancelled);
    cancel_on_decode();
    next_d(D::kReleased);
    expect_quiet();
}

TEST_F(Push, AFailedWriteEndsTheAttempt) {
    push_until_writing();
    p_->let_copies_go(true);
    next_p(P::kCancelled);
    next_p(P::kReleased);
    EXPECT_NE(next_d(D::kCancelled).why.find("the copy was made to fail"), std::string::npos);
    cancel_on_decode();
    next_d(D::kReleased);
    expect_quiet();
}

TEST_F(Push, AnOfferThatComesAfterItsCancelIsIgnored) {
    begin(Mode::kPush);
    d_->hold(proto::KvMessage::kOffer);
    offer(next_d(D::kAnnounced));
    cancel_on_decode();
    next_p(P::kCancelled);
    next_p(P::kReleased);
    next_d(D::kReleased);
    d_->release(proto::KvMessage::kOffer);
    push_all();
    expect_untouched();
    expect_quiet();
}

TEST_F(Push, AnOfferThatMeetsACancelOfPrefillIsIgnored) {
    begin(Mode::kPush);
    d_->hold(proto::KvMessage::kOffer);
    offer(next_d(D::kAnnounced));
    cancel_on_prefill();
    next_p(P::kReleased);
    d_->release(proto::KvMessage::kOffer);
    next_d(D::kCancelled);
    cancel_on_decode();
    next_d(D::kReleased);
    expect_quiet();
}

TEST_F(Push, AnOfferOfAnAttemptThatPrefillHasLostIsComputedAgain) {
    begin(Mode::kPush);
    DecodeEvent announced = next_d(D::kAnnounced);
    ++announced.attempt;
    offer(announced);
    EXPECT_EQ(next_d(D::kLeaseRanOut).attempt, announced.attempt);
    expect_quiet();
}

TEST_F(Push, MessagesOfAnEarlierAttemptChangeNothing) {
    push_until_ready();
    decode_->acknowledge(kId);
    next_p(P::kAcked);
    prefill_->begin(kId, 2, 0, kTokens, Mode::kPush);
    const DecodeEvent announced = next_d(D::kAnnounced);
    EXPECT_EQ(announced.attempt, 2u);
    offer(announced);
    EXPECT_EQ(next_p(P::kOffered).attempt, 2u);
    proto::KvMessage stale;
    stale.mutable_ack()->set_id(kId);
    stale.mutable_ack()->set_attempt(1);
    d_->send_raw({0, comm::kv_port(false, 0)}, 0, stale);
    stale.mutable_stopped()->set_id(kId);
    stale.mutable_stopped()->set_attempt(1);
    p_->send_raw({1, comm::kv_port(true, 0)}, 0, stale);
    stale.mutable_done()->set_id(kId);
    stale.mutable_done()->set_attempt(1);
    p_->send_raw({1, comm::kv_port(true, 0)}, 0, stale);
    stale.mutable_confirm()->set_id(kId);
    stale.mutable_confirm()->set_attempt(2);  // of this one, but nothing was read
    stale.mutable_confirm()->set_valid(true);
    p_->send_raw({1, comm::kv_port(true, 0)}, 0, stale);
    expect_quiet();
    push_all();
    done();
    EXPECT_EQ(next_d(D::kReady).attempt, 2u);
}

TEST_F(Push, AnOfferThatCannotBeUsedEndsTheAttempt) {
    begin(Mode::kPush);
    next_d(D::kAnnounced);
    proto::KvMessage message;
    message.mutable_offer()->set_id(kId);
    message.mutable_offer()->set_attempt(1);
    message.mutable_offer()->mutable_target()->add_blocks(1);
    d_->send_raw({0, comm::kv_port(false, 0)}, 0, message);
    EXPECT_NE(next_p(P::kCancelled).why.find("names 1 blocks from block 0 on, expected those up to 4"),
              std::string::npos);
    next_p(P::kReleased);
    next_d(D::kCancelled);
    expect_quiet();
}

// The fabric's thread sends and tells of a write's end when it has given the lock back.
TEST_F(Push, TheSideOutlivesWhoTellsOfTheLastWrite) {
    std::atomic<bool> hold{false}, held{false};
    prefill_notify_ = [&] {
        if (!hold) return;
        held = true;
        while (hold) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    start(30);
    push_until_writing();
    cancel_on_prefill();
    hold = true;
    std::thread fabric([&] { p_->let_copies_go(); });
    EXPECT_TRUE(eventually([&] { return held.load(); }));
    std::atomic<bool> gone{false};
    std::thread owner([&] {
        prefill_.reset();
        gone = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(gone);
    hold = false;
    fabric.join();
    owner.join();
}

TEST_F(Push, ARetractionImpliesTheAcknowledgement) {
    push_until_ready();
    d_->hold(proto::KvMessage::kAck);
    decode_->acknowledge(kId);
    Request again;
    again.id = kId;
    again.prompt = {1, 2, 3, 42};
    ASSERT_TRUE(decode_->retract(again, 2, 1).ok());
    next_p(P::kAcked);
    const PrefillEvent retracted = next_p(P::kRetracted);
    EXPECT_EQ(retracted.attempt, 2u);
    EXPECT_EQ(retracted.num_output, 1);
    EXPECT_EQ(retracted.request.prompt, again.prompt);
    d_->release(proto::KvMessage::kAck);
    expect_quiet();
}

}  // namespace
}  // namespace aerie::transfer
