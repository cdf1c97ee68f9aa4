#include "frontend/prefix_index.h"

#include <gtest/gtest.h>

#include <numeric>

namespace aerie::frontend {
namespace {

std::vector<int32_t> count(int from, int num_tokens) {
    std::vector<int32_t> tokens(num_tokens);
    std::iota(tokens.begin(), tokens.end(), from);
    return tokens;
}

PageChain chain(const std::vector<int32_t>& tokens, std::string_view salt = {}) {
    PageChain made(4, salt);
    made.append(tokens);
    return made;
}

TEST(PageChain, HoldsFullPagesOnlyAndDoesNotDependOnHowTheTextGrew) {
    EXPECT_EQ(chain(count(0, 3)).pages().size(), 0u);
    EXPECT_EQ(chain(count(0, 11)).pages().size(), 2u);
    PageChain grown(4);
    for (const int32_t token : count(0, 11)) grown.append(std::span(&token, 1));
    EXPECT_TRUE(std::ranges::equal(grown.pages(), chain(count(0, 11)).pages()));
    EXPECT_EQ(grown.num_tokens(), 11);
}

TEST(PageChain, APageIsItselfAndAllBeforeItAndTheSalt) {
    auto tokens = count(0, 12);
    const PageChain whole = chain(tokens);
    tokens[5] = 99;
    const PageChain other = chain(tokens);
    EXPECT_EQ(other.pages()[0], whole.pages()[0]);
    EXPECT_NE(other.pages()[1], whole.pages()[1]);
    EXPECT_NE(other.pages()[2], whole.pages()[2]);  // the same four tokens, after others
    EXPECT_NE(chain(count(0, 12), "salt").pages()[0], whole.pages()[0]);
    EXPECT_NE(chain(count(0, 12), "salt").pages()[0], chain(count(0, 12), "pepper").pages()[0]);
}

TEST(PrefixIndex, MatchesTheLeadingPages) {
    PrefixIndex index(100);
    EXPECT_EQ(index.match(chain(count(0, 40)).pages()), 0);
    index.insert(chain(count(0, 23)).pages());
    EXPECT_EQ(index.match(chain(count(0, 40)).pages()), 5);
    EXPECT_EQ(index.match(chain(count(0, 12)).pages()), 3);
    EXPECT_EQ(index.match(chain(count(1, 40)).pages()), 0);
    EXPECT_EQ(index.match({}), 0);
    index.clear();
    EXPECT_EQ(index.match(chain(count(0, 40)).pages()), 0);
}

TEST(PrefixIndex, ForgetsTheLeastRecentlyUsedFromTheEnd) {
    PrefixIndex index(10);
    const PageChain a = chain(count(0, 24)), b = chain(count(1000, 16)), c = chain(count(2000, 8));
    index.insert(a.pages());
    index.insert(b.pages());
    EXPECT_EQ(index.num_pages(), 10);
    index.insert(c.pages());
    EXPECT_EQ(index.num_pages(), 10);
    EXPECT_EQ(index.match(a.pages()), 4);
    EXPECT_EQ(index.match(b.pages()), 4);
    index.insert(a.pages().first(4));  // used again: now b is the oldest
    index.insert(chain(count(3000, 8)).pages());
    EXPECT_EQ(index.match(a.pages()), 4);
    EXPECT_EQ(index.match(b.pages()), 2);
}

TEST(PrefixIndex, NeverHoldsMoreThanItsBound) {
    PrefixIndex index(7);
    index.insert(chain(count(0, 400)).pages());
    EXPECT_EQ(index.num_pages(), 7);
    EXPECT_EQ(index.match(chain(count(0, 400)).pages()), 7);
    for (int i = 0; i < 100; ++i) {
        index.insert(chain(count(i * 1000, 4 * (i % 12))).pages());
        EXPECT_LE(index.num_pages(), 7);
    }
    PrefixIndex none(0);
    none.insert(chain(count(0, 40)).pages());
    EXPECT_EQ(none.match(chain(count(0, 40)).pages()), 0);
}

}  // namespace
}  // namespace aerie::frontend
