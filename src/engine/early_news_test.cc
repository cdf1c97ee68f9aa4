#include "engine/early_news.h"

#include <gtest/gtest.h>

#include <string>

namespace aerie::engine {
namespace {

TEST(EarlyNews, GivesTheOldestBackWhenItIsFull) {
    EarlyNews<std::string> news(2);
    EXPECT_FALSE(news.put(1, "one"));
    EXPECT_FALSE(news.put(2, "two"));
    EXPECT_FALSE(news.put(1, "one again"));  // now the newest
    const auto oldest = news.put(3, "three");
    ASSERT_TRUE(oldest);
    EXPECT_EQ(oldest->first, 2u);
    EXPECT_EQ(oldest->second, "two");
    EXPECT_EQ(news.take(1), "one again");
    EXPECT_FALSE(news.take(1));
    EXPECT_FALSE(news.contains(2));
    EXPECT_EQ(news.size(), 1u);
}

TEST(EarlyNews, ForgetsWhatAPredicateNames) {
    EarlyNews<int> news(100);
    for (int i = 0; i < 10; ++i) news.put(i, i);
    news.erase_if([](int i) { return i % 3 == 0; });
    EXPECT_EQ(news.size(), 6u);
    EXPECT_FALSE(news.contains(0));
    EXPECT_FALSE(news.contains(9));
    EXPECT_EQ(news.take(4), 4);
    for (int round = 0; round < 1000; ++round) news.put(7, round);  // nothing piles up
    EXPECT_EQ(news.size(), 5u);
}

}  // namespace
}  // namespace aerie::engine
