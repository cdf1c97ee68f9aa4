#include "transfer/kept_cancels.h"

#include <gtest/gtest.h>

namespace aerie::transfer {
namespace {

proto::KvMessage cancel(uint64_t id) {
    proto::KvMessage message;
    message.mutable_cancel()->set_id(id);
    message.mutable_cancel()->set_lease_ran_out(true);
    return message;
}
std::vector<uint64_t> ids(const std::vector<KeptCancels::Letter>& letters) {
    std::vector<uint64_t> result;
    for (const auto& [to, message] : letters) {
        result.push_back(message.cancel().id());
        EXPECT_FALSE(message.cancel().lease_ran_out());
    }
    return result;
}
using Ids = std::vector<uint64_t>;

TEST(KeptCancels, AreSaidAgainToTheSameLifeAlone) {
    KeptCancels kept;
    kept.add({1, 5}, 3, true, cancel(10));
    kept.add({1, 5}, 3, false, cancel(11));
    kept.add({2, 5}, 3, true, cancel(12));
    kept.add({1, 5}, 0, false, cancel(13));  // for whoever comes
    EXPECT_EQ(ids(kept.back(1, 3)), (Ids{11, 13}));  // the first one went over this connection
    EXPECT_EQ(ids(kept.back(1, 3)), Ids{});
    kept.lost(1);
    EXPECT_EQ(ids(kept.back(2, 3)), Ids{});
    EXPECT_EQ(ids(kept.back(1, 3)), (Ids{10, 11, 13}));
    kept.lost(1);
    EXPECT_EQ(ids(kept.back(1, 4)), Ids{});
    EXPECT_EQ(kept.size(), 1u);
    kept.lost(2);
    EXPECT_EQ(ids(kept.back(2, 3)), (Ids{12}));
}

TEST(KeptCancels, WhatWasSentLongAgoHasArrived) {
    const TimePoint begin = Clock::now();
    const auto at = [&](int seconds) { return begin + std::chrono::seconds(seconds); };
    KeptCancels kept;
    kept.add({1, 5}, 3, true, cancel(10), at(0));
    kept.add({1, 5}, 3, true, cancel(11), at(20));
    kept.add({1, 5}, 3, false, cancel(12), at(0));
    kept.lost(1, at(31));
    // What waits for a connection waits as long as it takes.
    EXPECT_EQ(ids(kept.back(1, 3, at(90))), (Ids{11, 12}));
    kept.lost(1, at(100));  // these went over the second connection
    EXPECT_EQ(ids(kept.back(1, 3, at(101))), (Ids{11, 12}));
    EXPECT_EQ(kept.size(), 2u);
    EXPECT_EQ(ids(kept.back(1, 3, at(132))), Ids{});
    EXPECT_EQ(kept.size(), 0u);
}

TEST(KeptCancels, AreNoMoreThanWhatWasSentOfLate) {
    const TimePoint begin = Clock::now();
    KeptCancels kept;
    for (int i = 0; i < 10'000; ++i) {
        kept.add({1, 5}, 3, true, cancel(i), begin + std::chrono::seconds(i));
        EXPECT_LE(kept.size(), 160u);  // twice the 31 of the last 30 s, and 64, and some
    }
}

}  // namespace
}  // namespace aerie::transfer
