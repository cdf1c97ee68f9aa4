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

}  // namespace
}  // namespace aerie::transfer
