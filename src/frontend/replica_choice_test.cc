#include "frontend/replica_choice.h"

#include <gtest/gtest.h>

#include <numeric>

#include "frontend/testing/fake_engine.h"

namespace aerie::frontend {
namespace {

constexpr int kPage = 16;

PageChain text(int from, int num_tokens, std::string_view salt = {}) {
    std::vector<int32_t> tokens(num_tokens);
    std::iota(tokens.begin(), tokens.end(), from);
    PageChain made(kPage, salt);
    made.append(tokens);
    return made;
}

class ReplicaChoiceTest : public testing::Test {
  protected:
    ReplicaChoice::Placed take(const PageChain& prompt, int num_choices = 1, int max_new = 16) {
        auto placed = choice_.take(state_, prompt, num_choices, max_new);
        EXPECT_TRUE(placed.ok()) << placed.message();
        return placed.ok() ? *placed : ReplicaChoice::Placed{};
    }
    // A prompt that is answered at once, with nothing.
    ReplicaChoice::Placed answer(const PageChain& prompt) {
        auto placed = take(prompt);
        choice_.release(placed, prompt);
        return placed;
    }

    control::EngineState state_ = FakeEngine::healthy_state(2, 3);
    ReplicaChoice choice_{{.page_size = kPage, .max_pages = 1000}};
};

TEST_F(ReplicaChoiceTest, ATurnFollowsItsConversation) {
    // Three conversations at once, each turn longer by what was said; who comes first changes.
    std::map<int, std::pair<int, int>> homes;
    for (int turn = 0; turn < 6; ++turn) {
        for (int i = 0; i < 3; ++i) {
            const int conversation = (turn * 2 + i) % 3;
            auto placed = take(text(conversation * 10000, 200 + turn * 100));
            const std::pair pair(placed.prefill, placed.decode);
            EXPECT_EQ(homes.try_emplace(conversation, pair).first->second, pair);
            if (turn > 0) {  // less than a page of the old turn and the new words
                EXPECT_LE(placed.decode_work, 16 + 16 + kPage) << turn;
            }
            choice_.release(placed, text(conversation * 10000, 284 + turn * 100));
        }
    }
    EXPECT_EQ(homes[0].second + homes[1].second + homes[2].second, 0 + 1 + 2);  // one each
}

TEST_F(ReplicaChoiceTest, WhatWasSaidIsKnownToDecodeAlone) {
    auto placed = take(text(0, 160));
    choice_.release(placed, text(0, 320));
    const auto next = take(text(0, 336));
    EXPECT_EQ(next.decode, placed.decode);
    EXPECT_EQ(next.decode_work, 16 + 16);
    EXPECT_EQ(next.prefill, placed.prefill);
    EXPECT_EQ(next.prefill_work, 176);
}

// A replica that holds 800 tokens of the prompt keeps it while its queue is shorter than that.
TEST_F(ReplicaChoiceTest, ALongerQueueOutweighsTheCache) {
    struct Case {
        int queue;  // tokens of work on the prompt's home
        bool stays;
    };
    for (const Case& c : {Case{0, true}, Case{640, true}, Case{784, true}, Case{816, false},
                          Case{5000, false}}) {
        ReplicaChoice choice({.page_size = kPage, .max_pages = 1000});
        auto state = FakeEngine::healthy_state(2, 2);
        auto home = choice.take(state, text(0, 800), 1, 0);
        choice.release(*home, text(0, 800));
        // The others are dead while the home's queue is filled.
        for (auto* replicas : {&state.prefill, &state.decode}) (*replicas)[1].live = false;
        ASSERT_EQ(home->prefill, 0);
        ASSERT_EQ(home->decode, 0);
        if (c.queue > 0) {
            ASSERT_TRUE(choice.take(state, text(50000, c.queue), 1, 0).ok());
        }
        for (auto* replicas : {&state.prefill, &state.decode}) (*replicas)[1].live = true;
        auto placed = choice.take(state, text(0, 900), 1, 0);
        EXPECT_EQ(placed->prefill == 0, c.stays) << c.queue;
        EXPECT_EQ(placed->decode == 0, c.stays) << c.queue;
    }
}

TEST_F(ReplicaChoiceTest, PrefillIsFreeWithTheFirstTokenAndDecodeWithTheLast) {
    state_ = FakeEngine::healthy_state(2, 2);
    auto first = take(text(0, 160), 1, 100);
    EXPECT_EQ(first.prefill_work, 160);
    EXPECT_EQ(first.decode_work, 260);
    choice_.prefilled(first);
    choice_.prefilled(first);  // once
    const auto second = take(text(10000, 200), 1, 100);
    EXPECT_EQ(second.prefill, 1);  // as free, and fewer of its pages are known
    EXPECT_EQ(second.decode, 1);
    const auto third = take(text(20000, 16), 1, 100);
    EXPECT_EQ(third.prefill, 0);
    EXPECT_EQ(third.decode, 0);
    choice_.release(first, text(0, 200));
    const auto fourth = take(text(30000, 16), 1, 100);
    EXPECT_EQ(fourth.prefill, 0);
    EXPECT_EQ(fourth.decode, 0);
}

TEST_F(ReplicaChoiceTest, ExpectedOutputIsBounded) {
    EXPECT_EQ(take(text(0, 16), 1, 30000).decode_work, 16 + 512);
}

TEST_F(ReplicaChoiceTest, TheChoicesOfAPromptShareItsWork) {
    auto placed = take(text(0, 160), 4, 10);
    EXPECT_EQ(placed.prefill_work, 40);
    EXPECT_EQ(placed.decode_work, 50);
    for (int i = 0; i < 4; ++i) {
        auto copy = placed;
        choice_.release(copy, text(0, 160));
    }
    // Nothing is left: the prompt's home wins against replicas without any work.
    EXPECT_EQ(take(text(0, 176), 1, 0).decode, placed.decode);
    EXPECT_EQ(take(text(0, 160), 1, 0).decode, placed.decode);
}

TEST_F(ReplicaChoiceTest, UnlikePromptsSpreadOverAllCaches) {
    std::map<int, int> prefill, decode;
    for (int i = 0; i < 12; ++i) {
        const auto placed = answer(text(i * 10000, 160));
        ++prefill[placed.prefill];
        ++decode[placed.decode];
    }
    EXPECT_EQ(prefill, (std::map<int, int>{{0, 6}, {1, 6}}));
    EXPECT_EQ(decode, (std::map<int, int>{{0, 4}, {1, 4}, {2, 4}}));
}

TEST_F(ReplicaChoiceTest, ANewLifeBeginsWithAnEmptyCache) {
    const auto home = answer(text(0, 160));
    state_.prefill[home.prefill].live = state_.decode[home.decode].live = false;
    const auto elsewhere = take(text(0, 160));
    EXPECT_NE(elsewhere.prefill, home.prefill);
    EXPECT_NE(elsewhere.decode, home.decode);
    EXPECT_EQ(elsewhere.decode_work, 160 + 16);
    state_.prefill[home.prefill] = {.replica = home.prefill, .node = 0, .live = true, .epoch = 2};
    state_.decode[home.decode] = {.replica = home.decode, .node = 2, .live = true, .epoch = 2};
    state_.prefill[1 - home.prefill].live = false;
    for (auto& replica : state_.decode) replica.live = replica.replica == home.decode;
    const auto back = take(text(0, 160));
    EXPECT_EQ(back.prefill_work, 160);
    EXPECT_EQ(back.decode_work, 160 + 16);
}

TEST_F(ReplicaChoiceTest, AFlushForgetsTheCacheAndNotTheWork) {
    const auto home = answer(text(0, 160));
    const auto running = take(text(0, 176));
    EXPECT_EQ(running.decode, home.decode);
    EXPECT_EQ(running.decode_work, 16 + 16);
    choice_.forget_prefixes();
    const auto next = take(text(0, 176));
    EXPECT_NE(next.decode, running.decode);
    EXPECT_EQ(next.decode_work, 176 + 16);
}

TEST_F(ReplicaChoiceTest, SaltsShareNothing) {
    const auto home = answer(text(0, 160, "tenant a"));
    EXPECT_EQ(take(text(0, 160, "tenant a")).decode_work, 16);
    EXPECT_EQ(home.decode_work, 160 + 16);
    EXPECT_EQ(take(text(0, 160, "tenant b")).decode_work, 160 + 16);
    EXPECT_EQ(take(text(0, 160)).decode_work, 160 + 16);
}

TEST_F(ReplicaChoiceTest, WhatNoLongerFitsIsNotCountedOn) {
    ReplicaChoice choice({.page_size = kPage, .max_pages = 20});
    const auto state = FakeEngine::healthy_state(1, 1);
    for (int i = 0; i < 2; ++i) {
        auto placed = choice.take(state, text(i * 10000, 240), 1, 0);
        choice.release(*placed, text(i * 10000, 240));
    }
    EXPECT_EQ(choice.take(state, text(0, 240), 1, 0)->decode_work, 160);  // 5 of 15 pages are left
}

TEST_F(ReplicaChoiceTest, WithoutPrefixCachesLoadAloneCounts) {
    ReplicaChoice choice({.page_size = kPage, .max_pages = 0});
    std::map<int, int> decode;
    for (int i = 0; i < 9; ++i) ++decode[choice.take(state_, text(0, 160), 1, 16)->decode];
    EXPECT_EQ(decode, (std::map<int, int>{{0, 3}, {1, 3}, {2, 3}}));
}

TEST_F(ReplicaChoiceTest, WhereReplicasDoBothOneIsChosen) {
    state_ = FakeEngine::healthy_state(2, 2);
    state_.unified = true;
    for (auto& replica : state_.decode) replica.node = replica.replica;
    for (int i = 0; i < 4; ++i) {
        auto placed = take(text(i * 10000, 160));
        EXPECT_EQ(placed.prefill, placed.decode);
        EXPECT_EQ(placed.decode, i % 2);
        EXPECT_EQ(placed.prefill_work, 0);
    }
}

TEST_F(ReplicaChoiceTest, SaysWhichRoleIsMissing) {
    for (auto& replica : state_.decode) replica.live = false;
    EXPECT_EQ(choice_.take(state_, text(0, 16), 1, 16).message(), "no decode host is live");
    for (auto& replica : state_.prefill) replica.live = false;
    EXPECT_EQ(choice_.take(state_, text(0, 16), 1, 16).message(), "no prefill host is live");
}

}  // namespace
}  // namespace aerie::frontend
