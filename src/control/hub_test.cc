#include "control/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "control/testing/fake_host.h"
#include "control/testing/token_log.h"
#include "metrics/registry.h"

namespace aerie::control {
namespace {

using testing::HasSubstr;

constexpr int kPrefillNode = 0, kDecodeNode = 1, kExpertNode = 2;

Request request(RequestId id, std::vector<int32_t> prompt) {
    Request made;
    made.id = id;
    made.prompt = std::move(prompt);
    return made;
}

// One life of a host within the test.
struct Host {
    Host(Hub& hub, const Placement& placement, HostIdentity identity)
        : link(std::move(identity), local_uplink(hub)), runtime(placement, identity.node, link), peers(link) {
        link.start(peers);
        link.loaded(runtime);
    }
    HostLink link;
    FakeRuntime runtime;
    FakePeers peers;
    ~Host() { link.stop(); }
};

class HubTest : public testing::Test {
  protected:
    HubTest() { make_hub({}); }
    ~HubTest() override {
        for (auto& host : hosts_) host.reset();
        hub_.reset();
    }

    void make_hub(HubOptions options) {
        options.identity = {kFakeVersion, kFakeConfigFingerprint, kFakeModelFingerprint};
        options.addresses = {"10.0.0.1", "10.0.0.2", "10.0.0.3"};
        options.registry = &registry_;
        hub_ = std::make_unique<Hub>(placement_, options);
        hub_->set_sink([this](std::vector<TokenOut> tokens) { log_.take(tokens); });
    }

    void start(int node, uint32_t epoch) {
        hosts_[node] = std::make_unique<Host>(*hub_, placement_, fake_identity(node, epoch));
    }
    void start_all() {
        for (const int node : {kPrefillNode, kDecodeNode, kExpertNode}) start(node, 1);
        const Status started = hub_->wait_started(20, 20);
        ASSERT_TRUE(started.ok()) << started.message();
    }
    template <typename Done>
    bool eventually(Done done) {
        for (const TimePoint limit = after(20); Clock::now() < limit;) {
            if (done()) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        return false;
    }

    const Placement placement_ = fake_placement();
    metrics::Registry registry_;
    TokenLog log_;
    std::mutex mutex_;
    std::vector<std::string> lost_;  // what on_lost() was told; guarded by mutex_
    std::unique_ptr<Hub> hub_;
    std::array<std::unique_ptr<Host>, 3> hosts_;
};

TEST_F(HubTest, EveryReplicaFlushesOrSaysWhyNot) {
    start_all();
    EXPECT_TRUE(hub_->wait_started(20, 20).ok());
    Status flushed = hub_->flush_cache(20);
    EXPECT_TRUE(flushed.ok()) << flushed.message();
    ASSERT_TRUE(hub_->add(request(1, {kHold, 5})).ok());
    log_.wait_tokens(1, 1);
    flushed = hub_->flush_cache(20);
    ASSERT_FALSE(flushed.ok());
    EXPECT_THAT(flushed.message(), HasSubstr("1 requests run"));
    hub_->abort(1);
}

TEST_F(HubTest, TokensComeBackInOrderWithOneEnd) {
    start_all();
    EXPECT_TRUE(hub_->state().healthy()) << hub_->state().why_unhealthy();
    for (RequestId id = 1; id <= 50; ++id) {
        ASSERT_TRUE(hub_->add(request(id, {kEcho, 7, 8, static_cast<int32_t>(id)})).ok());
    }
    for (RequestId id = 1; id <= 50; ++id) {
        const auto entry = log_.wait_end(id);
        EXPECT_EQ(entry.tokens, (std::vector<int32_t>{7, 8, static_cast<int32_t>(id)}));
        EXPECT_EQ(entry.num_ends, 1);
        EXPECT_EQ(entry.finish, FinishReason::kStop);
    }
    EXPECT_TRUE(hub_->drain(5));
}

TEST_F(HubTest, AnotherVersionConfigurationOrModelIsRefusedWithTheNodeNamed) {
    struct Case {
        HostIdentity identity;
        const char* says;
    };
    std::vector<Case> cases;
    for (int i = 0; i < 4; ++i) cases.push_back({fake_identity(kDecodeNode, 1), ""});
    cases[0].identity.version = "0.0.9";
    cases[0].says = "node-1 (decode) runs aerie 0.0.9, node-0 runs test";
    cases[1].identity.config_fingerprint = 99;
    cases[1].says = "node-1 (decode) has another configuration than node-0";
    cases[2].identity.model_fingerprint = 99;
    cases[2].says = "node-1 (decode) has another model than node-0";
    cases[3].identity.node = 7;
    cases[3].says = "node-7 has no role in this cluster of 3 nodes";
    for (const Case& wrong : cases) {
        Host host(*hub_, placement_, wrong.identity);
        const auto end = host.link.wait_end(after(10));
        EXPECT_EQ(end.how, SessionEnd::kRefused);
        EXPECT_THAT(end.why, HasSubstr(wrong.says));
    }
}

TEST_F(HubTest, AnOldEpochIsRefused) {
    start(kDecodeNode, 5);
    ASSERT_EQ(hosts_[kDecodeNode]->link.wait_end(after(0.2)).how, SessionEnd::kNone);
    Host old(*hub_, placement_, fake_identity(kDecodeNode, 5));
    const auto end = old.link.wait_end(after(10));
    EXPECT_EQ(end.how, SessionEnd::kRefused);
    EXPECT_THAT(end.why, HasSubstr("joins with epoch 5, but epoch 5 has been seen"));
    Host later(*hub_, placement_, fake_identity(kDecodeNode, 6));
    EXPECT_EQ(hosts_[kDecodeNode]->link.wait_end(after(10)).how, SessionEnd::kLost);
}

TEST_F(HubTest, TheStartErrorNamesNodeAddressAndSeconds) {
    start(kPrefillNode, 1);
    start(kExpertNode, 1);
    const Status started = hub_->wait_started(0.3, 1);
    ASSERT_FALSE(started.ok());
    EXPECT_THAT(started.message(), HasSubstr("after 0 s: node-1 (decode) has not joined"));
    EXPECT_THAT(started.message(), HasSubstr("node-1 (decode) was expected at 10.0.0.2"));
    EXPECT_FALSE(hub_->state().healthy());
    EXPECT_THAT(hub_->state().why_unhealthy(), HasSubstr("no live decode replica: 0 on node-1"));
    const Status added = hub_->add(request(1, {kEcho, 7}));
    ASSERT_FALSE(added.ok());
    EXPECT_THAT(added.message(), HasSubstr("host node-1 (decode) is down"));
}

TEST_F(HubTest, AFailedStartEndsTheWait) {
    std::thread failing([this] { hub_->fail_start("node-1 has no weights"); });
    const Status started = hub_->wait_started(20, 20);
    failing.join();
    ASSERT_FALSE(started.ok());
    EXPECT_EQ(started.message(), "node-1 has no weights");
}

TEST_F(HubTest, AbortReachesBothHostsAndSilencesTheRequest) {
    start_all();
    ASSERT_TRUE(hub_->add(request(1, {kHold, 7})).ok());
    log_.wait_tokens(1, 1);
    hub_->abort(1);
    hub_->abort(1);
    EXPECT_TRUE(eventually([&] {
        return hosts_[kPrefillNode]->runtime.num_aborts == 1 &&
               hosts_[kDecodeNode]->runtime.num_aborts == 1;
    }));
    TokenOut late;
    late.id = 1;
    late.tokens = {9};
    late.finish = FinishReason::kStop;
    hosts_[kDecodeNode]->link.emit({late});
    ASSERT_TRUE(hub_->add(request(2, {kEcho, 7})).ok());
    log_.wait_end(2);
    EXPECT_EQ(log_.wait_tokens(1, 1).num_ends, 0);
    EXPECT_EQ(hosts_[kExpertNode]->runtime.num_aborts, 0);
}

TEST_F(HubTest, OneSidesFailureAbortsTheOther) {
    start_all();
    ASSERT_TRUE(hub_->add(request(1, {kFail, 7})).ok());
    const auto entry = log_.wait_end(1);
    EXPECT_EQ(entry.finish, FinishReason::kAbort);
    EXPECT_EQ(entry.error, "the prefill leader gave it up");
    EXPECT_TRUE(eventually([&] { return hosts_[kDecodeNode]->runtime.num_aborts == 1; }));
}

TEST_F(HubTest, ADeadDecodeHostEndsItsRequestsAndARestartServesAgain) {
    start_all();
    ASSERT_TRUE(hub_->add(request(1, {kHold, 7})).ok());
    ASSERT_TRUE(hub_->add(request(2, {kSilent})).ok());
    log_.wait_tokens(1, 1);
    hosts_[kDecodeNode].reset();
    for (const RequestId id : {1, 2}) {
        const auto entry = log_.wait_end(id);
        EXPECT_EQ(entry.finish, FinishReason::kAbort);
        EXPECT_EQ(entry.error, "host node-1 (decode) died while the request ran");
    }
    EXPECT_TRUE(eventually([&] { return hosts_[kPrefillNode]->runtime.num_aborts == 2; }));
    EXPECT_THAT(hub_->collect_metrics(5),
                HasSubstr("sglang:ae_sep_host_up{node=\"node-1\",role=\"decode\"} 0"));

    start(kDecodeNode, 2);
    ASSERT_TRUE(eventually([&] { return hub_->state().healthy(); }));
    ASSERT_TRUE(hub_->add(request(3, {kEcho, 7})).ok());
    EXPECT_EQ(log_.wait_end(3).finish, FinishReason::kStop);
    const std::string text = hub_->collect_metrics(5);
    EXPECT_THAT(text, HasSubstr("sglang:ae_sep_host_restarts_total 1"));
    EXPECT_THAT(text, HasSubstr("sglang:ae_sep_host_up{node=\"node-1\",role=\"decode\"} 1"));
    // Three requests at the prefill host, one at the new decode host.
    EXPECT_THAT(text, HasSubstr("fake_requests_total 4"));
}

TEST_F(HubTest, ADeadPrefillHostEndsOnlyWhatHasNoTokenYet) {
    start_all();
    ASSERT_TRUE(hub_->add(request(1, {kHold, 7})).ok());
    ASSERT_TRUE(hub_->add(request(2, {kSilent})).ok());
    log_.wait_tokens(1, 1);
    hosts_[kPrefillNode].reset();
    EXPECT_EQ(log_.wait_end(2).error, "host node-0 (prefill) died while the request ran");
    EXPECT_EQ(log_.wait_tokens(1, 1).num_ends, 0);
    EXPECT_TRUE(eventually([&] { return hosts_[kDecodeNode]->runtime.num_aborts == 1; }));
}

TEST_F(HubTest, ADeadExpertHostEndsNoRequest) {
    start_all();
    ASSERT_TRUE(hub_->add(request(1, {kHold, 7})).ok());
    log_.wait_tokens(1, 1);
    const int before = hosts_[kDecodeNode]->runtime.num_peer_changes;
    hosts_[kExpertNode].reset();
    ASSERT_TRUE(eventually([&] { return !hub_->state().healthy(); }));
    EXPECT_THAT(hub_->state().why_unhealthy(), HasSubstr("no complete expert copy"));
    EXPECT_TRUE(hub_->add(request(2, {kHold, 7})).ok());
    start(kExpertNode, 2);
    ASSERT_TRUE(eventually([&] { return hub_->state().healthy(); }));
    EXPECT_TRUE(eventually(
        [&] { return hosts_[kDecodeNode]->runtime.num_peer_changes >= before + 2; }));
    EXPECT_EQ(log_.wait_tokens(1, 1).num_ends, 0);
    EXPECT_EQ(log_.wait_tokens(2, 1).num_ends, 0);
}

// What is sent to ranks that do not listen yet would be lost.
TEST_F(HubTest, AHostIsNamedToItsPeersOnlyOnceBothAreLoaded) {
    struct Record final : PeerListener {
        void peers(const std::vector<Peer>& peers) override {
            for (const Peer& peer : peers) {
                if (peer.node == kExpertNode) expert_epoch = peer.epoch;
            }
            ++num_tables;
        }
        std::atomic<uint32_t> expert_epoch{0};
        std::atomic<int> num_tables{0};
    };
    Record record;
    HostLink decode(fake_identity(kDecodeNode, 1), local_uplink(*hub_));
    FakeRuntime runtime(placement_, kDecodeNode, decode);
    decode.start(record);
    start(kExpertNode, 7);
    ASSERT_TRUE(eventually([&] { return record.num_tables >= 1; }));
    EXPECT_EQ(record.expert_epoch, 0u);
    decode.loaded(runtime);
    EXPECT_TRUE(eventually([&] { return record.expert_epoch == 7; }));
    hosts_[kExpertNode].reset();
    EXPECT_TRUE(eventually([&] { return record.expert_epoch == 0; }));
    decode.stop();
}

TEST_F(HubTest, AStuckRankAndAFailedRankEndTheirHost) {
    hub_->on_lost([this](int node, uint32_t epoch, const std::string& why) {
        std::lock_guard lock(mutex_);
        lost_.push_back(fmt::format("{} {} {}", node, epoch, why));
    });
    start_all();
    ASSERT_TRUE(hub_->add(request(1, {kStickRank})).ok());
    EXPECT_EQ(log_.wait_end(1).error, "host node-1 (decode) died while the request ran");
    hosts_[kExpertNode]->link.report_failed("expert rank 0", "out of memory");
    ASSERT_TRUE(eventually([&] {
        std::lock_guard lock(mutex_);
        return lost_.size() == 2;
    }));
    EXPECT_THAT(lost_[0], HasSubstr("1 1 its rank 0 has not gone round its loop for 1000000.0 s"));
    EXPECT_EQ(lost_[1], "2 1 expert rank 0 cannot go on: out of memory");
}

TEST_F(HubTest, AHostThatCannotLoadFailsTheStartWithItsReason) {
    start(kPrefillNode, 1);
    HostLink failing(fake_identity(kDecodeNode, 1), local_uplink(*hub_));
    FakePeers peers(failing);
    failing.start(peers);
    failing.report_failed("it", "model.safetensors: is truncated");
    failing.stop();
    const Status started = hub_->wait_started(20, 20);
    ASSERT_FALSE(started.ok());
    EXPECT_EQ(started.message(),
              "host node-1 (decode) could not start: it cannot go on: model.safetensors: is truncated");
}

TEST_F(HubTest, AHostThatJoinsAfterTheShutdownIsToldToo) {
    hub_->shut_down_hosts(1);
    start(kDecodeNode, 1);
    EXPECT_EQ(hosts_[kDecodeNode]->link.wait_end(after(10)).how, SessionEnd::kShutdown);
}

TEST_F(HubTest, StopRefusesDrainsAbortsAndShutsDown) {
    start_all();
    ASSERT_TRUE(hub_->add(request(1, {kHold, 7})).ok());
    log_.wait_tokens(1, 1);
    hub_->stop_accepting();
    EXPECT_TRUE(hub_->state().stopping);
    const Status added = hub_->add(request(2, {kEcho, 7}));
    ASSERT_FALSE(added.ok());
    EXPECT_EQ(added.message(), "the server is stopping");
    EXPECT_FALSE(hub_->drain(0.1));
    hub_->abort_all("the server was stopped");
    EXPECT_EQ(log_.wait_end(1).error, "the server was stopped");
    EXPECT_TRUE(hub_->drain(5));

    std::vector<int> order;
    std::thread ending([&] {
        for (const int node : {kPrefillNode, kDecodeNode}) {
            EXPECT_EQ(hosts_[node]->link.wait_end(after(10)).how, SessionEnd::kShutdown);
        }
        EXPECT_EQ(hosts_[kExpertNode]->link.wait_end(Clock::now()).how, SessionEnd::kNone);
        hosts_[kPrefillNode].reset();
        hosts_[kDecodeNode].reset();
        EXPECT_EQ(hosts_[kExpertNode]->link.wait_end(after(10)).how, SessionEnd::kShutdown);
        hosts_[kExpertNode].reset();
    });
    const TimePoint start = Clock::now();
    hub_->shut_down_hosts(10);
    EXPECT_LT(seconds_since(start), 10);
    ending.join();
}

}  // namespace
}  // namespace aerie::control
