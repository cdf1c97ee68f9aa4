// The contract's one-sided part (remote_memory.h), over each backend.
#include "comm/remote_memory.h"

#include <cstring>
#include <thread>

#include "comm/remote_memory_contract.h"
#include "comm/regions.h"

namespace aerie::comm {
namespace {

TEST_P(OneSidedContract, PutsAndGetsOfManyPiecesOfEachSize) {
    for (const From from : kBoth) {
        SCOPED_TRACE(static_cast<int>(from));
        constexpr size_t kBytes = 8 << 20;
        const auto epoch = static_cast<uint32_t>(from) + 1;
        auto a = host(0, epoch), b = host(1, epoch);
        connect(*a, *b);
        Memory theirs(*b, kBytes, 1, from);
        auto mine = pattern(kBytes, 2);
        const auto region = attached(*a, theirs.region);
        EXPECT_EQ(region.bytes, kBytes);
        EXPECT_EQ(region.node, 1);
        for (const size_t size : {size_t{1}, size_t{7}, size_t{100}, size_t{4096}, size_t{73728}}) {
            SCOPED_TRACE(size);
            auto expected = theirs.bytes();
            std::vector<Piece> pieces;
            for (size_t i = 0; i < 97; ++i) {  // scattered, without overlap
                const size_t to = (i * 31 % 97) * (kBytes / 97), from = i * (kBytes / 97) + i % 5;
                pieces.push_back({to, mine.data() + from, size});
                std::memcpy(expected.data() + to, mine.data() + from, size);
            }
            EXPECT_EQ(error_of(*a, Access::kPut, region, pieces), "");
            EXPECT_TRUE(same(theirs.bytes(), expected));
            std::vector<std::byte> read(kBytes), expected_read(kBytes);
            for (auto& piece : pieces) {
                std::memcpy(expected_read.data() + (piece.local - mine.data()), piece.local, size);
                piece.local = read.data() + (piece.local - mine.data());
            }
            EXPECT_EQ(error_of(*a, Access::kGet, region, pieces), "");
            EXPECT_TRUE(same(read, expected_read));
        }
    }
}

TEST_P(OneSidedContract, ALargePieceIsWhole) {
    for (const From from : kBoth) {
        SCOPED_TRACE(static_cast<int>(from));
        constexpr size_t kBytes = 64 << 20;
        const auto epoch = static_cast<uint32_t>(from) + 1;
        auto a = host(0, epoch), b = host(1, epoch);
        connect(*a, *b);
        Memory theirs(*b, kBytes, 1, from);
        auto mine = pattern(kBytes, 2);
        const auto region = attached(*a, theirs.region);
        EXPECT_EQ(error_of(*a, Access::kPut, region, {{{0, mine.data(), kBytes}}}), "");
        EXPECT_TRUE(same(theirs.bytes(), mine));
        std::vector<std::byte> read(kBytes);
        EXPECT_EQ(error_of(*a, Access::kGet, region, {{{0, read.data(), kBytes}}}), "");
        EXPECT_TRUE(same(read, mine));
    }
}

TEST_P(OneSidedContract, NoPiecesAndEmptyOnesAreDone) {
    for (const From from : kBoth) {
        SCOPED_TRACE(static_cast<int>(from));
        const auto epoch = static_cast<uint32_t>(from) + 1;
        auto a = host(0, epoch), b = host(1, epoch);
        connect(*a, *b);
        Memory theirs(*b, 100, 1, from);
        const auto before = theirs.bytes();
        const auto region = attached(*a, theirs.region);
        std::byte byte{};
        for (const Access access : {Access::kPut, Access::kGet}) {
            EXPECT_EQ(error_of(*a, access, region, {}), "");
            EXPECT_EQ(error_of(*a, access, region, {{{100, &byte, 0}, {0, nullptr, 0}}}), "");
        }
        EXPECT_TRUE(same(theirs.bytes(), before));
    }
}

TEST_P(OneSidedContract, AMessageSentAfterDoneFindsTheDataThere) {
    for (const From from : kBoth) {
        SCOPED_TRACE(static_cast<int>(from));
        constexpr int kRounds = 200;
        constexpr size_t kBytes = 100 << 10;
        // Looks at the region when a message comes.
        struct Looks : Inbox {
            void delivered(const Incoming& message, const std::byte* payload) override {
                uint32_t round;
                std::memcpy(&round, message.header, sizeof(round));
                if (std::memcmp(memory, pattern(kBytes, round).data(), kBytes) != 0) ++num_stale;
                Inbox::delivered(message, payload);
            }
            const std::byte* memory;
            std::atomic<int> num_stale{0};
        } inbox;
        const auto epoch = static_cast<uint32_t>(from) + 1;
        auto a = host(0, epoch), b = host(1, epoch);
        Memory theirs(*b, kBytes, 0, from);
        inbox.memory = theirs.region.base;
        b->open(3, &inbox);
        connect(*a, *b);
        const auto region = attached(*a, theirs.region);
        for (uint32_t round = 1; round <= kRounds; ++round) {
            auto data = pattern(kBytes, round);
            const TransferDone then_tell = [&](const Status& status) {
                EXPECT_TRUE(status.ok());
                EXPECT_TRUE(a->send({1, 3}, {&round, sizeof(round)}).ok());
            };
            std::vector<Piece> pieces;
            for (size_t at = 0; at < kBytes; at += 10 << 10)
                pieces.push_back({at, &data[at], 10 << 10});
            std::swap(pieces.front(), pieces.back());
            ASSERT_TRUE(a->put(region, pieces, then_tell).ok());
            ASSERT_TRUE(inbox.wait(round));
        }
        EXPECT_EQ(inbox.num_stale, 0);
    }
}

TEST_P(OneSidedContract, WhatIsOutsideOfTheRegionIsRefused) {
    for (const From from : kBoth) {
        SCOPED_TRACE(static_cast<int>(from));
        const auto epoch = static_cast<uint32_t>(from) + 1;
        auto a = host(0, epoch), b = host(1, epoch);
        connect(*a, *b);
        Memory theirs(*b, 1000, 1, from);
        const auto before = theirs.bytes();
        const auto region = attached(*a, theirs.region);
        std::vector<std::byte> mine(2000);
        for (const Piece& bad :
             {Piece{1000, mine.data(), 1}, Piece{0, mine.data(), 1001}, Piece{999, mine.data(), 2},
              Piece{~uint64_t{0}, mine.data(), 2}, Piece{1, mine.data(), ~size_t{0}}}) {
            for (const Access access : {Access::kPut, Access::kGet}) {
                Outcome outcome;
                const std::vector<Piece> pieces{{0, mine.data(), 10}, bad};
                const Status status = a->transfer(access, region, pieces, outcome.done());
                ASSERT_FALSE(status.ok());
                EXPECT_NE(status.message().find("piece 1 of 2"), std::string::npos)
                    << status.message();
                EXPECT_NE(status.message().find("1000 bytes"), std::string::npos)
                    << status.message();
                EXPECT_EQ(outcome.count(), 0);
            }
        }
        EXPECT_TRUE(same(theirs.bytes(), before));
    }
}

TEST_P(OneSidedContract, KeysThatAreNoneAreRefused) {
    auto a = host(0), b = host(1);
    connect(*a, *b);
    Memory theirs(*b, 1000, 1, From::kRegistered);
    const std::string& key = theirs.region.key;
    EXPECT_LE(key.size(), kMaxKeyBytes);
    for (const std::string& bad : {std::string(), std::string("x"), std::string(5000, 'k'),
                                   key.substr(0, 10), std::string(key.size(), '\xff')}) {
        const auto region = a->attach(bad);
        ASSERT_FALSE(region.ok());
        EXPECT_NE(region.message().find("key"), std::string::npos) << region.message();
    }
    EXPECT_FALSE(a->register_memory(nullptr, 10).ok());
    std::byte byte;
    EXPECT_FALSE(a->register_memory(&byte, 0).ok());
}

TEST_P(OneSidedContract, OwnMemoryCanBeAccessed) {
    auto a = host(4, 7);
    Memory own(*a, 1000, 1, From::kAllocated);
    const auto region = attached(*a, own.region);
    auto data = pattern(500, 2);
    EXPECT_EQ(error_of(*a, Access::kPut, region, {{{500, data.data(), 500}}}), "");
    EXPECT_EQ(std::memcmp(own.region.base + 500, data.data(), 500), 0);
}

TEST_P(OneSidedContract, ARevokedRegionIsLeftAlone) {
    auto a = host(0), b = host(1);
    connect(*a, *b);
    constexpr size_t kBytes = 1 << 20;
    auto theirs = pattern(kBytes, 1);
    auto mine = pattern(kBytes, 2);
    Memory other(*b, kBytes, 3, From::kAllocated);
    for (int round = 0; round < 10; ++round) {
        auto own = b->register_memory(theirs.data(), kBytes);
        ASSERT_TRUE(own.ok()) << own.message();
        const auto region = attached(*a, *own);
        std::atomic<bool> stop{false};
        std::atomic<int> num_ended{0}, num_begun{0};
        std::thread writer([&] {
            while (!stop) {
                const auto ended = [&](const Status&) { ++num_ended; };
                if (!a->put(region, {{{0, mine.data(), kBytes}}}, ended).ok()) continue;
                ++num_begun;
                EXPECT_TRUE(eventually([&] { return num_begun - num_ended < 4; }));
            }
        });
        EXPECT_TRUE(eventually([&] { return num_ended > 5; }));
        b->revoke(own->id);
        std::memset(theirs.data(), round, kBytes);  // a late write would be a race, and seen here
        const auto before = theirs;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        stop = true;
        writer.join();
        EXPECT_TRUE(eventually([&] { return num_ended == num_begun; }));
        EXPECT_TRUE(same(theirs, before));
        const std::string why = error_of(*a, Access::kGet, region, {{{0, mine.data(), 8}}});
        EXPECT_NE(why.find("revoked"), std::string::npos) << why;
    }
    // Others are not concerned.
    EXPECT_EQ(a->peer_epoch(1), 1u);
    const auto region = attached(*a, other.region);
    EXPECT_EQ(error_of(*a, Access::kPut, region, {{{0, mine.data(), kBytes}}}), "");
    EXPECT_TRUE(same(other.bytes(), mine));
    b->revoke(12345);
}

TEST_P(OneSidedContract, ARevokedRegionOfTheFabricsMemoryIsGone) {
    auto a = host(0), b = host(1);
    connect(*a, *b);
    constexpr size_t kBytes = 16 << 20;
    auto mine = pattern(kBytes, 2);
    for (int round = 0; round < 5; ++round) {
        auto own = b->allocate_memory(kBytes);
        ASSERT_TRUE(own.ok()) << own.message();
        const auto region = attached(*a, *own);
        std::atomic<bool> stop{false};
        std::atomic<int> num_put{0};
        std::thread writer([&] {
            while (!stop)
                num_put += error_of(*a, Access::kPut, region, {{{0, mine.data(), kBytes}}}).empty();
        });
        EXPECT_TRUE(eventually([&] { return num_put > 0; }));
        b->revoke(own->id);
        const std::string why = error_of(*a, Access::kGet, region, {{{0, mine.data(), 8}}});
        EXPECT_NE(why.find("revoked"), std::string::npos) << why;
        stop = true;
        writer.join();
    }
    EXPECT_EQ(a->peer_epoch(1), 1u);
}

TEST(RemoteMemory, NeighboursAreJoined) {
    std::vector<std::byte> m(100);
    const std::vector<Piece> pieces{{0, &m[0], 10},  {10, &m[10], 5}, {15, &m[20], 5},
                                    {20, &m[25], 0}, {20, &m[25], 5}, {40, &m[30], 5}};
    const auto out = joined(pieces);
    ASSERT_EQ(out.size(), 3u);
    EXPECT_EQ(out[0].bytes, 15u);
    EXPECT_EQ(out[1].offset, 15u);
    EXPECT_EQ(out[1].bytes, 10u);
    EXPECT_EQ(out[2].bytes, 5u);
    EXPECT_EQ(total_bytes(out), total_bytes(pieces));
}

}  // namespace
}  // namespace aerie::comm
