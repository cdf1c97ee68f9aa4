// For tests: a prefill side on node 0 and a decode side on node 1 with small pools, and the events of
// both as they come.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "comm/port_numbers.h"
#include "metrics/registry.h"
#include "transfer/decode_side.h"
#include "transfer/prefill_side.h"
#include "transfer/testing/held_fabric.h"
#include "transfer/testing/small_pools.h"

namespace aerie::transfer {

inline constexpr RequestId kId = 7;
inline constexpr int kVocab = 100;
inline constexpr int kTokens = 14;  // four blocks, the last one half full

class TwoSides : public testing::Test {
  protected:
    using P = PrefillEvent::Kind;
    using D = DecodeEvent::Kind;
    using Body = proto::KvMessage::BodyCase;

    void SetUp() override { start(30); }

    void start(double lease_s, int prefill_cp = 1, int decode_cp = 1) {
        TearDown();
        network_ = comm::make_local_network();
        p_ = std::make_unique<HeldFabric>(comm::make_local_fabric(network_, 0, ++epoch_));
        d_ = std::make_unique<HeldFabric>(comm::make_local_fabric(network_, 1, epoch_));
        ASSERT_TRUE(p_->set_peer(1, epoch_, d_->address()).ok());
        ASSERT_TRUE(d_->set_peer(0, epoch_, p_->address()).ok());
        prefill_memory_ = memory(prefill_cp, 1);
        decode_memory_ = memory(decode_cp, 101);
        make_prefill(lease_s, pools(*p_, prefill_memory_));
        make_decode(pools(*d_, decode_memory_));
    }
    void make_prefill(double lease_s, std::vector<Pool> pools) {
        prefill_ = make_prefill_side({.replica = 0,
                                      .fabric = p_.get(),
                                      .decode = {{1, comm::kv_port(true, 0)}},
                                      .pools = std::move(pools),
                                      .vocab_size = kVocab,
                                      .lease_s = lease_s,
                                      .notify = prefill_notify_,
                                      .metrics = {registry_, {"m", "prefill", 0}}});
    }
    void make_decode(std::vector<Pool> pools) {
        decode_ = make_decode_side({.replica = 0,
                                    .fabric = d_.get(),
                                    .prefill = {{0, comm::kv_port(false, 0)}},
                                    .pools = std::move(pools),
                                    .vocab_size = kVocab,
                                    .notify = [] {},
                                    .metrics = {registry_, {"m", "decode", 0}}});
    }
    void TearDown() override {
        if (p_) p_->let_copies_go();
        if (d_) d_->let_copies_go();
        prefill_.reset();
        decode_.reset();
        p_.reset();
        d_.reset();
        prefill_events_.clear();
        decode_events_.clear();
    }

    // The next event of each side; fails the test where none comes.
    PrefillEvent next_p(P kind) { return next(*prefill_, prefill_events_, kind); }
    DecodeEvent next_d(D kind) { return next(*decode_, decode_events_, kind); }
    // Nothing more is told for a while.
    void expect_quiet() {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        EXPECT_FALSE(peek(*prefill_, prefill_events_)) << "prefill tells more";
        EXPECT_FALSE(peek(*decode_, decode_events_)) << "decode tells more";
    }
    static bool eventually(const std::function<bool()>& holds) {
        for (const TimePoint end = after(20); Clock::now() < end;) {
            if (holds()) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return holds();
    }

    void begin(Mode mode, uint32_t attempt = 1) { prefill_->begin(kId, attempt, 0, kTokens, mode); }
    void offer(const DecodeEvent& announced, int num_matched = 0) {
        decode_->offer(announced, kTokens, num_matched, to_);
    }
    void push_all() {
        const PushChunk chunk{kId, 0, kTokens, from_};
        prefill_->prepare({&chunk, 1});
        for (int layer = 0; layer < kLayers; ++layer)
            for (size_t c = 0; c < prefill_memory_.size(); ++c) prefill_->push(static_cast<int>(c), layer);
    }
    void done() { prefill_->done(kId, first(), from_); }
    static TokenOut first() {
        TokenOut token;
        token.id = kId;
        token.tokens = {42};
        return token;
    }
    // As far as each state of a push: announced, offered, being written, written.
    void push_until_offered() {
        begin(Mode::kPush);
        offer(next_d(D::kAnnounced));
        next_p(P::kOffered);
    }
    void push_until_writing() {
        push_until_offered();
        p_->hold_copies();
        push_all();
    }
    void push_until_ready() {
        push_until_offered();
        push_all();
        done();
        next_d(D::kReady);
    }
    // And of a pull: published, being read, read and not confirmed.
    DecodeEvent pull_until_published() {
        begin(Mode::kPull);
        done();
        return next_d(D::kAnnounced);
    }
    void pull_until_reading() {
        d_->hold_copies();
        offer(pull_until_published());
        EXPECT_TRUE(eventually([&] { return d_->num_copies() == static_cast<size_t>(kLayers); }));
    }
    void pull_until_read() {
        d_->hold(proto::KvMessage::kRead);
        offer(pull_until_published());
        EXPECT_TRUE(eventually([&] { return d_->num_held(proto::KvMessage::kRead) == 1; }));
    }

    // Whether tokens [begin, kTokens) are as the prefill side has them, and nothing else was touched.
    void expect_arrived(int begin) const {
        const Memory expected =
            arrived(prefill_memory_, from_, memory(static_cast<int>(decode_memory_.size()), 101), to_, begin, kTokens);
        EXPECT_TRUE(expected == decode_memory_);
    }
    void expect_untouched() const { expect_arrived(kTokens); }

    double metric(const std::string& name) {
        double sum = 0;
        for (const auto& family : registry_.collect())
            if (family.name == name)
                for (const auto& sample : family.samples) sum += sample.value;
        return sum;
    }

    std::function<void()> prefill_notify_ = [] {};  // from the next start() on
    metrics::Registry registry_;
    uint32_t epoch_ = 0;
    std::shared_ptr<comm::LocalNetwork> network_;
    std::unique_ptr<HeldFabric> p_, d_;
    Memory prefill_memory_, decode_memory_;
    std::unique_ptr<PrefillSide> prefill_;
    std::unique_ptr<DecodeSide> decode_;
    std::vector<int32_t> from_ = {3, 4, 9, 1}, to_ = {10, 11, 2, 5};

  private:
    template <typename Side, typename Events>
    static bool peek(Side& side, Events& events) {
        for (auto& event : side.poll()) events.push_back(std::move(event));
        return !events.empty();
    }
    template <typename Side, typename Event, typename Kind>
    static Event next(Side& side, std::deque<Event>& events, Kind kind) {
        const bool came = eventually([&] { return peek(side, events); });
        EXPECT_TRUE(came) << "no event, expected " << static_cast<int>(kind);
        if (!came) return {};
        Event event = std::move(events.front());
        events.pop_front();
        EXPECT_EQ(static_cast<int>(event.kind), static_cast<int>(kind)) << event.why;
        EXPECT_EQ(event.id, kId);
        return event;
    }
    std::deque<PrefillEvent> prefill_events_;
    std::deque<DecodeEvent> decode_events_;
};

}  // namespace aerie::transfer
