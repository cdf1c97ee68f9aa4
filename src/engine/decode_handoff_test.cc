// What a decode replica makes of a prefill replica's messages, without a prefill replica.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "comm/port_numbers.h"
#include "engine/handoff.h"
#include "metrics/registry.h"
#include "schedule/plan_shapes.h"
#include "transfer/testing/held_fabric.h"
#include "transfer/testing/small_pools.h"

namespace aerie::engine {
namespace {

class DecodeHandoffTest : public testing::Test {
  protected:
    DecodeHandoffTest() {
        CHECK(prefill_.set_peer(1, 1, decode_.address()).ok());
        handoff_ = make_decode_handoff(scheduler_,
                                       {.replica = 0,
                                        .fabric = &decode_,
                                        .prefill = {{0, comm::kv_port(false, 0)}},
                                        .pools = transfer::pools(decode_, memory_),
                                        .vocab_size = 100,
                                        .notify = [this] { ++num_news_; },
                                        .metrics = {registry_, {"m", "decode", 0}}},
                                       [] {});
    }

    void say(const proto::KvMessage& message) {
        prefill_.send_raw({1, comm::kv_port(true, 0)}, 0, message);
    }
    void say_cancel(RequestId id, uint32_t attempt = 1, bool lease_ran_out = false) {
        proto::KvMessage message;
        message.mutable_cancel()->set_id(id);
        message.mutable_cancel()->set_attempt(attempt);
        message.mutable_cancel()->set_lease_ran_out(lease_ran_out);
        message.mutable_cancel()->set_why(fmt::format("{} is not wanted", id));
        say(message);
    }
    void say_announce(RequestId id, uint32_t attempt = 1) {
        proto::KvMessage message;
        message.mutable_announce()->set_id(id);
        message.mutable_announce()->set_attempt(attempt);
        say(message);
    }
    // It is computed, and kept for this side to read.
    void say_published(RequestId id) {
        proto::KvMessage message;
        message.mutable_done()->set_id(id);
        message.mutable_done()->set_attempt(1);
        message.mutable_done()->mutable_source();
        say(message);
    }
    // Says something, and lets it become an event.
    template <typename Say>
    void told(const Say& say) {
        const int before = num_news_;
        say();
        for (const TimePoint end = after(20); num_news_ == before && Clock::now() < end;) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_GT(num_news_, before);
    }
    // One that prefill has been asked to compute again, as attempt 2.
    void send_back(RequestId id) {
        handoff_->add(schedule::request(id, 5));
        decode_.hold(proto::KvMessage::kRetract);
        told([&] { say_published(id); });
        expect_quiet();
        told([&] { say_cancel(id, 1, true); });
        expect_quiet();
        ASSERT_EQ(num_retracts(), 1u);
    }
    size_t num_retracts() const { return decode_.num_held(proto::KvMessage::kRetract); }
    void break_off() { prefill_.disconnect(1, prefill_.peer_connection(1)); }
    void come_back() { ASSERT_TRUE(prefill_.set_peer(1, 1, decode_.address()).ok()); }
    void expect_quiet() {
        std::vector<TokenOut> out;
        handoff_->receive(out);
        for (const TokenOut& token : out) ADD_FAILURE() << token.id << ": " << token.error;
    }
    // What comes until there are `count` tokens or errors.
    std::vector<TokenOut> receive(size_t count) {
        std::vector<TokenOut> out;
        for (const TimePoint end = after(20); out.size() < count && Clock::now() < end;) {
            handoff_->receive(out);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return out;
    }

    std::atomic<int> num_news_{0};
    metrics::Registry registry_;
    transfer::Memory memory_ = transfer::memory(1, 1);
    std::shared_ptr<comm::LocalNetwork> network_ = comm::make_local_network();
    transfer::HeldFabric prefill_{comm::make_local_fabric(network_, 0, 1)};
    transfer::HeldFabric decode_{comm::make_local_fabric(network_, 1, 1)};
    schedule::Scheduler scheduler_{schedule::options(schedule::Flavour::kDecode, transfer::kBlocks)};
    std::unique_ptr<KvHandoff> handoff_;
};

TEST_F(DecodeHandoffTest, ARequestWhoseEndIsForgottenBeforeItCameEndsNow) {
    constexpr RequestId kRemembered = 4096;
    for (RequestId id = 1; id <= kRemembered + 2; ++id) say_cancel(id);
    const auto out = receive(2);
    ASSERT_EQ(out.size(), 2u);
    for (size_t i = 0; i < out.size(); ++i) {
        EXPECT_EQ(out[i].id, i + 1);
        EXPECT_EQ(out[i].finish, FinishReason::kAbort);
        EXPECT_EQ(out[i].error, fmt::format("{} is not wanted", i + 1));
    }
    // The others are told when they come.
    handoff_->add(schedule::request(3, 5));
    const auto third = receive(1);
    ASSERT_EQ(third.size(), 1u);
    EXPECT_EQ(third[0].error, "3 is not wanted");
    EXPECT_TRUE(scheduler_.idle());
}

TEST_F(DecodeHandoffTest, AnAttemptBesideTheOneUnderWayIsRefused) {
    handoff_->add(schedule::request(1, 5));
    say_announce(1);
    for (const TimePoint end = after(20); scheduler_.counts().num_queued == 0 && Clock::now() < end;) {
        std::vector<TokenOut> out;
        handoff_->receive(out);
    }
    const transfer::HeldFabric::Body cancel = proto::KvMessage::kCancel;
    decode_.hold(cancel);
    say_announce(1, 2);
    for (const TimePoint end = after(20); decode_.num_held(cancel) == 0 && Clock::now() < end;) {
        std::vector<TokenOut> out;
        handoff_->receive(out);
        EXPECT_TRUE(out.empty());
    }
    EXPECT_EQ(decode_.num_held(cancel), 1u);
}

// Prefill had begun it, and says of it, when it is back, that it has ended.
TEST_F(DecodeHandoffTest, WhatWasSentBackIsAskedForAgainWhenTheConnectionIsBack) {
    send_back(1);
    break_off();
    come_back();
    told([&] { say_cancel(1, 2); });
    expect_quiet();
    EXPECT_EQ(num_retracts(), 2u);
    say_announce(1, 3);
    for (const TimePoint end = after(20); scheduler_.counts().num_queued == 0 && Clock::now() < end;) {
        expect_quiet();
    }
    EXPECT_EQ(scheduler_.counts().num_queued, 1);
}

TEST_F(DecodeHandoffTest, WhatIsSentBackWaitsForAConnection) {
    send_back(1);
    break_off();
    for (int round = 0; round < 3; ++round) expect_quiet();
    EXPECT_EQ(num_retracts(), 1u);
    come_back();
    expect_quiet();
    EXPECT_EQ(num_retracts(), 2u);
    expect_quiet();
    EXPECT_EQ(num_retracts(), 2u);
}

TEST_F(DecodeHandoffTest, WhatIsSentBackWaitsTenSecondsForAConnection) {
    send_back(1);
    break_off();
    const TimePoint begin = Clock::now();
    const auto out = receive(1);
    ASSERT_EQ(out.size(), 1u);
    EXPECT_EQ(out[0].error, "no prefill host could be asked to compute the request again for 10 s");
    EXPECT_GE(seconds_since(begin), 9.9);
    EXPECT_TRUE(scheduler_.idle());
}

TEST_F(DecodeHandoffTest, ALeaseThatEndsBeforeTheRequestComesHasItSentBack) {
    decode_.hold(proto::KvMessage::kRetract);
    told([&] { say_published(1); });
    expect_quiet();
    told([&] { say_cancel(1, 1, true); });
    expect_quiet();
    EXPECT_EQ(num_retracts(), 0u);
    handoff_->add(schedule::request(1, 5));
    EXPECT_EQ(num_retracts(), 1u);
    handoff_->abort(1);
    EXPECT_TRUE(scheduler_.idle());
}

}  // namespace
}  // namespace aerie::engine
