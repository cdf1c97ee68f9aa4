// One-sided access and the loss of a life, or of its connection, over each backend.
#include <cstring>
#include <thread>

#include "comm/remote_memory_contract.h"

namespace aerie::comm {
namespace {

TEST_P(OneSidedContract, NoWriteOfADroppedLifeLands) {
    constexpr size_t kBytes = 4 << 20;
    for (uint32_t round = 1; round <= 10; ++round) {
        auto a = host(0, round), b = host(1, round);
        connect(*a, *b);
        Memory memory(*a, kBytes, 1, kBoth[round % 2]);
        ASSERT_TRUE(eventually([&] { return b->peer_epoch(0) != 0; }));
        const auto region = attached(*b, memory.region);
        std::atomic<int> num_begun{0}, num_ended{0}, num_failed{0};
        auto data = pattern(kBytes, 2);
        std::thread writer([&] {
            const auto ended = [&](const Status& status) {
                num_failed += !status.ok();
                ++num_ended;
            };
            std::vector<Piece> pieces;
            for (size_t at = 0; at < kBytes; at += 128 << 10)
                pieces.push_back({at, data.data() + at, 64 << 10});
            while (b->put(region, pieces, ended).ok()) {
                ++num_begun;
                EXPECT_TRUE(eventually([&] { return num_begun - num_ended < 4; }));
            }
        });
        EXPECT_TRUE(eventually([&] { return num_ended > 3; }));
        std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
        a->drop_peer(1, round);
        std::memset(memory.region.base, 0x55, kBytes);
        const auto before = memory.bytes();
        writer.join();
        EXPECT_TRUE(eventually([&] { return num_ended == num_begun; }));
        EXPECT_TRUE(same(memory.bytes(), before));
        const Status late = b->put(region, {{{0, data.data(), 8}}}, [](const Status&) {});
        ASSERT_FALSE(late.ok());
        EXPECT_NE(late.message().find("not connected"), std::string::npos) << late.message();
    }
}

// The peer lives, and connects again at once: what it had begun ends all the same.
TEST_P(OneSidedContract, NoWriteOfALostConnectionLands) {
    constexpr size_t kBytes = 4 << 20, kPiece = 1 << 10;
    auto data = pattern(kBytes, 2);
    auto a = host(0), b = host(1);
    for (int round = 0; round < 10; ++round) {
        connect(*a, *b);
        Memory memory(*a, kBytes, 1, kBoth[round % 2]);
        ASSERT_TRUE(eventually([&] { return b->peer_epoch(0) != 0; }));
        const auto region = attached(*b, memory.region);
        std::atomic<int> num_begun{0}, num_ended{0};
        std::thread writer([&] {
            std::vector<Piece> pieces;  // many, so that the loss comes while they are sent
            for (size_t at = 0; at < kBytes; at += 2 * kPiece)
                pieces.push_back({at, data.data() + at, kPiece});
            while (b->put(region, pieces, [&](const Status&) { ++num_ended; }).ok()) {
                ++num_begun;
                EXPECT_TRUE(eventually([&] { return num_begun - num_ended < 4; }));
            }
        });
        EXPECT_TRUE(eventually([&] { return num_ended > 2; }));
        std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
        a->disconnect(1, a->peer_connection(1));
        std::memset(memory.region.base, 0x55, kBytes);
        const auto before = memory.bytes();
        ASSERT_TRUE(eventually([&] { return b->set_peer(0, 1, a->address()).ok(); }));
        ASSERT_TRUE(eventually([&] { return b->peer_connection(0) != region.connection; }));
        writer.join();
        EXPECT_TRUE(eventually([&] { return num_ended == num_begun; }));
        EXPECT_TRUE(same(memory.bytes(), before));
        const std::string late = error_of(*b, Access::kPut, region, {{{0, data.data(), 8}}});
        EXPECT_NE(late.find("a connection that is lost"), std::string::npos) << late;
        const auto again = attached(*b, memory.region);
        EXPECT_EQ(error_of(*b, Access::kPut, again, {{{0, data.data(), 8}}}), "");
    }
}

TEST_P(OneSidedContract, ARegionOfAnOldLifeIsRefused) {
    auto a = host(0), b = host(1, 1);
    connect(*a, *b);
    auto bytes = pattern(1000, 1);
    auto own = b->register_memory(bytes.data(), bytes.size());
    ASSERT_TRUE(own.ok());
    const auto region = attached(*a, *own);
    b.reset();
    b = host(1, 2);
    connect(*a, *b);
    const auto attached_late = a->attach(own->key);
    ASSERT_FALSE(attached_late.ok());
    EXPECT_NE(attached_late.message().find("epoch 1"), std::string::npos);
    std::vector<std::byte> mine(10);
    const Status late = a->put(region, {{{0, mine.data(), 10}}}, [](const Status&) {});
    ASSERT_FALSE(late.ok());
    EXPECT_NE(late.message().find("of epoch 1, connected is epoch 2"), std::string::npos)
        << late.message();
}

}  // namespace
}  // namespace aerie::comm
