#include <gtest/gtest.h>

#include "comm/fabric_contract.h"
#include "comm/peer_watch.h"
#include "comm/port_numbers.h"

namespace aerie::comm {
namespace {

// Two hosts whose halves are in this process, so that the test can end one of them.
class SplitFabricTest : public testing::Test {
  protected:
    struct Host {
        Host(const std::array<std::shared_ptr<LocalNetwork>, 2>& networks, int node) {
            auto exchange = make_local_fabric(networks[0], node, 1);
            auto kv = make_local_fabric(networks[1], node, 1);
            halves = {exchange.get(), kv.get()};
            both = make_split_fabric(std::move(exchange), std::move(kv));
        }
        std::array<Fabric*, 2> halves{};
        std::unique_ptr<Fabric> both;
    };

    Status connect() { return a_.both->set_peer(1, 1, b_.both->address()); }

    const std::array<std::shared_ptr<LocalNetwork>, 2> networks_{make_local_network(),
                                                                 make_local_network()};
    Host a_{networks_, 0}, b_{networks_, 1};
};

TEST_F(SplitFabricTest, TheLossIsToldOnceNothingOfEitherHalfCanLand) {
    std::vector<std::byte> memory(100);
    for (const int half : {0, 1}) {
        SCOPED_TRACE(half);
        ASSERT_TRUE(connect().ok());
        auto own = a_.both->register_memory(memory.data(), memory.size());
        ASSERT_TRUE(own.ok());
        auto region = b_.both->attach(own->key);
        ASSERT_TRUE(region.ok()) << region.message();
        std::atomic<int> num_lost{0}, num_early{0};
        std::optional<PeerWatch> watch;
        watch.emplace(*a_.both, [&](int, uint32_t epoch) {
            if (epoch != 0) return;
            num_early += a_.halves[0]->peer_epoch(1) != 0 || a_.halves[1]->peer_epoch(1) != 0;
            ++num_lost;
        });
        a_.halves[half]->disconnect(1, a_.halves[half]->peer_connection(1));
        EXPECT_EQ(a_.both->peer_epoch(1), 0u);
        EXPECT_EQ(a_.both->peer_connection(1), 0u);
        EXPECT_FALSE(a_.both->send({1, kHelloPort}, text("x")).ok());
        EXPECT_TRUE(eventually([&] { return num_lost == 1; }));
        EXPECT_EQ(num_early, 0);
        // The same life comes back, and what it began before stays out.
        ASSERT_TRUE(connect().ok());
        EXPECT_EQ(a_.both->peer_epoch(1), 1u);
        std::byte byte{1};
        const Status late = b_.both->put(*region, {{{0, &byte, 1}}}, [](const Status&) {});
        ASSERT_FALSE(late.ok());
        EXPECT_NE(late.message().find("a connection that is lost"), std::string::npos)
            << late.message();
        EXPECT_EQ(num_lost, 1);
        a_.both->revoke(own->id);
    }
}

TEST_F(SplitFabricTest, APeerIsConnectedAgainWhicheverHalfWasLost) {
    for (int round = 0; round < 50; ++round) {
        ASSERT_TRUE(connect().ok());
        ASSERT_EQ(b_.both->peer_epoch(0), 1u);
        Fabric& half = *(round % 4 < 2 ? a_ : b_).halves[round % 2];
        const int peer = round % 4 < 2 ? 1 : 0;
        half.disconnect(peer, half.peer_connection(peer));
        EXPECT_TRUE(eventually([&] { return connect().ok(); }));
        EXPECT_TRUE(a_.both->send({1, kHelloPort}, text("x")).ok());
        EXPECT_TRUE(a_.both->send({1, kv_port(true, 0)}, text("x")).ok());
    }
}

}  // namespace
}  // namespace aerie::comm
