#include "comm/fabric_contract.h"

#include <thread>

namespace aerie::comm {

namespace {

// What a host sees of its peers. The listener outlives this, as it must.
class Changes {
  public:
    explicit Changes(Fabric& fabric) {
        fabric.on_peer_change([seen = seen_](int node, uint32_t epoch) {
            std::lock_guard lock(seen->mutex);
            seen->changes.emplace_back(node, epoch);
        });
    }
    std::vector<std::pair<int, uint32_t>> all() const {
        std::lock_guard lock(seen_->mutex);
        return seen_->changes;
    }

  private:
    struct Seen {
        std::mutex mutex;
        std::vector<std::pair<int, uint32_t>> changes;
    };
    std::shared_ptr<Seen> seen_ = std::make_shared<Seen>();
};

void connect(Fabric& from, Fabric& to) {
    const Status status = from.set_peer(to.node(), to.epoch(), to.address());
    ASSERT_TRUE(status.ok()) << status.message();
}

TEST_P(FabricContract, PayloadsOfEachSizeArriveWhole) {
    std::atomic<int> pending{0};
    std::vector<std::vector<std::byte>> sent;  // outlives the hosts, also where the test fails
    Inbox inbox;
    auto a = host(0), b = host(1);
    b->open(7, &inbox);
    connect(*a, *b);
    for (size_t size : {size_t{0}, size_t{1}, size_t{100}, size_t{8} << 10, size_t{65537},
                        size_t{1} << 20, size_t{100} << 20}) {
        sent.push_back(pattern(size, sent.size()));
        const std::string header = std::to_string(size);
        const Status status = a->send({1, 7}, with_payload(header, sent.back(), &pending));
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_TRUE(inbox.wait(sent.size())) << size << " bytes";
        const auto mail = inbox.take();
        EXPECT_EQ(mail.node, 0);
        EXPECT_EQ(mail.epoch, 1u);
        EXPECT_EQ(mail.header, header);
        EXPECT_TRUE(same(mail.bytes, sent.back())) << size << " bytes";
        EXPECT_TRUE(size == 0 || mail.payload != sent.back().data());
    }
    EXPECT_TRUE(eventually([&] { return pending == 0; }));
    EXPECT_EQ(inbox.num_accepted, sent.size() - 1);  // not for the empty one
}

TEST_P(FabricContract, HeaderOfAnySizeUpToTheLimit) {
    Inbox inbox;
    auto a = host(0), b = host(1);
    b->open(0, &inbox);
    connect(*a, *b);
    for (size_t size : {size_t{0}, size_t{1}, kMaxHeaderBytes}) {
        ASSERT_TRUE(a->send({1, 0}, text(std::string(size, 'h'))).ok());
    }
    ASSERT_TRUE(inbox.wait(3));
    size_t total = 0;
    for (const auto& mail : inbox.mail()) total += mail.header.size();
    EXPECT_EQ(total, 1 + kMaxHeaderBytes);
}

TEST_P(FabricContract, OwnNodeIsAlwaysConnectedAndLendsInPlace) {
    Inbox inbox;
    auto a = host(3, 9);
    a->open(1, &inbox);
    EXPECT_EQ(a->peer_epoch(3), 9u);
    const auto payload = pattern(1000, 1);
    std::atomic<int> pending{0};
    ASSERT_TRUE(a->send({3, 1}, with_payload("lent", payload, nullptr, Payload::kLent)).ok());
    ASSERT_TRUE(a->send({3, 1}, with_payload("owned", payload, &pending)).ok());
    ASSERT_TRUE(inbox.wait(2));
    EXPECT_EQ(pending, 0);
    for (const auto& mail : inbox.mail()) {
        EXPECT_EQ(mail.header == "lent", mail.payload == payload.data());
        EXPECT_TRUE(same(mail.bytes, payload));
    }
}

TEST_P(FabricContract, BothSidesCanSendOnceOneHasConnected) {
    Inbox inbox;
    auto a = host(0), b = host(1);
    Changes changes(*b);
    a->open(0, &inbox);
    connect(*a, *b);
    ASSERT_TRUE(eventually([&] { return b->peer_epoch(0) == 1; }));
    EXPECT_TRUE(b->send({0, 0}, text("back")).ok());
    EXPECT_TRUE(inbox.wait(1));
    connect(*b, *a);  // changes nothing
    ASSERT_TRUE(b->send({0, 0}, text("again")).ok());
    EXPECT_TRUE(inbox.wait(2));
    EXPECT_EQ(changes.all(), (std::vector<std::pair<int, uint32_t>>{{0, 1u}}));
}

TEST_P(FabricContract, BothSidesMayConnectAtOnce) {
    for (int round = 0; round < 10; ++round) {
        Inbox at_a, at_b;
        auto a = host(0, 1 + round), b = host(1, 1 + round);
        a->open(0, &at_a);
        b->open(0, &at_b);
        std::thread other([&] { connect(*b, *a); });
        connect(*a, *b);
        other.join();
        ASSERT_TRUE(a->send({1, 0}, text("to b")).ok());
        ASSERT_TRUE(b->send({0, 0}, text("to a")).ok());
        EXPECT_TRUE(at_a.wait(1));
        EXPECT_TRUE(at_b.wait(1));
    }
}

TEST_P(FabricContract, FourThreadsSendTenThousandMessages) {
    constexpr int kThreads = 4, kEach = 2500;
    Inbox inbox;
    inbox.keep = false;
    auto a = host(0), b = host(1);
    b->open(0, &inbox);
    connect(*a, *b);
    std::atomic<int> pending{0};
    const auto payload = pattern(512, 1);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < kEach; ++i)
                EXPECT_TRUE(a->send({1, 0}, with_payload("m", payload, &pending)).ok());
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(inbox.wait(kThreads * kEach));
    EXPECT_TRUE(eventually([&] { return pending == 0; }));
    EXPECT_EQ(inbox.num_delivered, size_t{kThreads * kEach});
}

TEST_P(FabricContract, RefusedPayloadsAreDropped) {
    Inbox inbox;
    inbox.refuse = true;
    auto a = host(0), b = host(1);
    b->open(0, &inbox);
    connect(*a, *b);
    std::atomic<int> pending{0};
    const auto small = pattern(100, 1), large = pattern(4 << 20, 2);
    ASSERT_TRUE(a->send({1, 0}, with_payload("s", small, &pending)).ok());
    ASSERT_TRUE(a->send({1, 0}, with_payload("l", large, &pending)).ok());
    EXPECT_TRUE(eventually([&] { return pending == 0 && inbox.num_refused == 2; }));
    inbox.refuse = false;
    ASSERT_TRUE(a->send({1, 0}, with_payload("s", small, &pending)).ok());
    EXPECT_TRUE(inbox.wait(1));
    EXPECT_EQ(inbox.num_delivered, 1u);
}

TEST_P(FabricContract, NobodyListensIsNoError) {
    auto a = host(0), b = host(1);
    connect(*a, *b);
    std::atomic<int> pending{0};
    const auto small = pattern(100, 1), large = pattern(4 << 20, 2);
    EXPECT_TRUE(a->send({1, 5}, with_payload("s", small, &pending)).ok());
    EXPECT_TRUE(a->send({1, 5}, with_payload("l", large, &pending)).ok());
    EXPECT_TRUE(a->send({1, kMaxPorts + 3}, with_payload("no such port", small, &pending)).ok());
    EXPECT_TRUE(eventually([&] { return pending == 0; }));
}

TEST_P(FabricContract, SendToUnknownOrDroppedPeerIsAnError) {
    auto a = host(0), b = host(1);
    std::atomic<int> pending{0};
    const auto payload = pattern(100, 1);
    for (int node : {1, 2, -1, kMaxNodes}) {
        const Status status = a->send({node, 0}, with_payload("x", payload, &pending));
        ASSERT_FALSE(status.ok()) << node;
        EXPECT_NE(status.message().find("not connected"), std::string::npos) << status.message();
    }
    connect(*a, *b);
    EXPECT_TRUE(a->send({1, 0}, with_payload("x", payload, &pending)).ok());
    a->drop_peer(1, 1);
    EXPECT_EQ(a->peer_epoch(1), 0u);
    EXPECT_FALSE(a->send({1, 0}, with_payload("x", payload, &pending)).ok());
    EXPECT_TRUE(eventually([&] { return pending == 0; }));
    const Status again = a->set_peer(1, 1, b->address());
    ASSERT_FALSE(again.ok());
    EXPECT_NE(again.message().find("epoch 1"), std::string::npos) << again.message();
    EXPECT_TRUE(eventually([&] { return b->peer_epoch(0) == 0; }));
    EXPECT_FALSE(b->send({0, 0}, text("late")).ok());
    EXPECT_FALSE(b->set_peer(0, 1, a->address()).ok());
}

TEST_P(FabricContract, AddressThatIsNoneIsAnError) {
    auto a = host(0);
    for (const char* address : {"", "nonsense", "\xff\x00\x7f"}) {
        EXPECT_FALSE(a->set_peer(1, 1, address).ok());
        EXPECT_EQ(a->peer_epoch(1), 0u);
    }
    EXPECT_FALSE(a->set_peer(-1, 1, a->address()).ok());
    EXPECT_FALSE(a->set_peer(kMaxNodes, 1, a->address()).ok());
}

TEST_P(FabricContract, CloseWhileMessagesArrive) {
    auto a = host(0), b = host(1);
    connect(*a, *b);
    std::atomic<bool> stop{false};
    std::atomic<int> pending{0};
    const auto small = pattern(3000, 1), large = pattern(1 << 20, 2);
    std::vector<std::thread> threads;
    for (const auto* payload : {&small, &large}) {
        threads.emplace_back([&, payload] {
            std::atomic<int> mine{0};  // bounds what is in flight
            while (!stop) {
                EXPECT_TRUE(a->send({1, 0}, with_payload("m", *payload, &mine)).ok());
                EXPECT_TRUE(eventually([&] { return mine < 8; }));
            }
            EXPECT_TRUE(eventually([&] { return mine == 0; }));
        });
    }
    for (int round = 0; round < 20; ++round) {
        auto inbox = std::make_unique<Inbox>();
        inbox->keep = false;
        b->open(0, inbox.get());
        EXPECT_TRUE(inbox->wait(5));
        b->close(0);
        EXPECT_EQ(inbox->num_accepted, inbox->num_delivered + inbox->num_failed);
        EXPECT_EQ(inbox->num_failed, 0u);
    }  // a call after close() would touch a dead inbox
    stop = true;
    for (auto& thread : threads) thread.join();
}

TEST_P(FabricContract, DestroyedHostIsLostAndItsNextLifeIsAnother) {
    Inbox inbox;
    auto a = host(0), b = host(1, 4);
    Changes changes(*a);
    connect(*a, *b);
    const std::string old_address = b->address();
    b.reset();
    ASSERT_TRUE(eventually([&] { return a->peer_epoch(1) == 0; }));
    EXPECT_FALSE(a->send({1, 0}, text("x")).ok());
    EXPECT_FALSE(a->set_peer(1, 4, old_address).ok());
    b = host(1, 5);
    b->open(0, &inbox);
    connect(*a, *b);
    EXPECT_EQ(a->peer_epoch(1), 5u);
    EXPECT_TRUE(a->send({1, 0}, text("x")).ok());
    EXPECT_TRUE(inbox.wait(1));
    const std::vector<std::pair<int, uint32_t>> expected{{1, 4u}, {1, 0u}, {1, 5u}};
    EXPECT_TRUE(eventually([&] { return changes.all() == expected; }));
}

TEST_P(FabricContract, ALostConnectionOfALifeMayComeBack) {
    Inbox inbox;
    auto a = host(0), b = host(1, 3);
    b->open(0, &inbox);
    Changes at_a(*a);
    EXPECT_EQ(a->peer_connection(1), 0u);
    uint64_t before = 0;
    for (int round = 0; round < 3; ++round) {
        connect(*a, *b);
        const uint64_t connection = a->peer_connection(1);
        EXPECT_GT(connection, before);
        a->disconnect(1, before);  // not the present one
        EXPECT_EQ(a->peer_connection(1), connection);
        EXPECT_TRUE(a->send({1, 0}, text("x")).ok());
        EXPECT_TRUE(inbox.wait(round + 1));
        a->disconnect(1, connection);
        EXPECT_EQ(a->peer_connection(1), 0u);
        EXPECT_FALSE(a->send({1, 0}, text("x")).ok());
        EXPECT_TRUE(eventually([&] { return b->peer_epoch(0) == 0; }));
        before = connection;
    }
    const std::vector<std::pair<int, uint32_t>> expected{{1, 3u}, {1, 0u}, {1, 3u},
                                                         {1, 0u}, {1, 3u}, {1, 0u}};
    EXPECT_TRUE(eventually([&] { return at_a.all() == expected; }));
}

TEST_P(FabricContract, NothingOfAnOldLifeArrivesOnceTheNewOneIsKnown) {
    Inbox inbox;
    inbox.keep = true;
    auto a = host(0), old_b = host(1, 1), new_b = host(1, 2);
    a->open(0, &inbox);
    connect(*a, *old_b);
    std::atomic<bool> stop{false};
    std::thread late([&] {
        const auto payload = pattern(100, 1);
        std::atomic<int> pending{0};
        while (!stop) {
            (void)old_b->send({0, 0}, with_payload("old", payload, &pending));
            (void)old_b->set_peer(0, 1, a->address());
            EXPECT_TRUE(eventually([&] { return pending == 0; }));
        }
    });
    EXPECT_TRUE(inbox.wait(10));
    connect(*a, *new_b);
    const size_t before = inbox.count();
    EXPECT_EQ(a->peer_epoch(1), 2u);
    EXPECT_TRUE(eventually([&] { return old_b->peer_epoch(0) == 0; }));
    EXPECT_FALSE(a->set_peer(1, 1, old_b->address()).ok());
    ASSERT_TRUE(eventually([&] { return new_b->send({0, 0}, text("new")).ok(); }));
    EXPECT_TRUE(inbox.wait(before + 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop = true;
    late.join();
    EXPECT_EQ(inbox.count(), before + 1);
    EXPECT_EQ(inbox.mail().back().epoch, 2u);
}

TEST_P(FabricContract, DropWhileMessagesArriveBothWays) {
    for (uint32_t round = 1; round <= 10; ++round) {
        Inbox at_a, at_b;
        auto a = host(0, round), b = host(1, round);
        at_a.keep = at_b.keep = false;
        a->open(0, &at_a);
        b->open(0, &at_b);
        connect(*a, *b);
        ASSERT_TRUE(eventually([&] { return b->peer_epoch(0) != 0; }));
        std::atomic<int> pending{0};
        const auto small = pattern(3000, 1), large = pattern(2 << 20, 2);
        std::vector<std::thread> threads;
        for (auto* from : {a.get(), b.get()}) {
            threads.emplace_back([&, from] {
                const int to = 1 - from->node();
                for (int i = 0;; ++i) {
                    const auto& payload = i % 4 == 0 ? large : small;
                    if (!from->send({to, 0}, with_payload("m", payload, &pending)).ok()) break;
                    EXPECT_TRUE(eventually([&] { return pending < 8; }));
                }
            });
        }
        EXPECT_TRUE(at_a.wait(20) && at_b.wait(20));
        a->drop_peer(1, round);
        const size_t before = at_a.count();
        for (auto& thread : threads) thread.join();
        EXPECT_TRUE(eventually([&] { return pending == 0; })) << pending;
        EXPECT_EQ(at_a.count(), before);
        EXPECT_EQ(at_a.num_accepted, at_a.num_delivered + at_a.num_failed);
    }
}

TEST_P(FabricContract, ALateListenerIsToldOfThePeersThatAreConnected) {
    auto a = host(0), b = host(1, 6);
    connect(*a, *b);
    Changes changes(*a);
    EXPECT_EQ(changes.all(), (std::vector<std::pair<int, uint32_t>>{{1, 6u}}));
}

}  // namespace
}  // namespace aerie::comm
