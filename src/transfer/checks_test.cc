// What a peer says and cannot be: the request ends, nothing else does.
#include "transfer/testing/two_sides.h"

namespace aerie::transfer {
namespace {

class Checks : public TwoSides {
  protected:
    void say_to_decode(const proto::KvMessage& message) {
        p_->send_raw({1, comm::kv_port(true, 0)}, 0, message);
    }
    void say_to_prefill(const proto::KvMessage& message) {
        d_->send_raw({0, comm::kv_port(false, 0)}, 0, message);
    }
};

TEST_F(Checks, WhatCannotBeEndsTheRequest) {
    push_until_offered();
    proto::KvMessage message;
    auto* done = message.mutable_done();
    done->set_id(kId);
    done->set_attempt(1);
    done->set_num_tokens(kTokens - 1);
    done->mutable_first()->add_tokens(42);
    say_to_decode(message);
    EXPECT_EQ(next_d(D::kCancelled).why, "the prefill side has KV of 13 tokens, expected 14");
    done->set_num_tokens(kTokens);
    done->mutable_first()->set_tokens(0, kVocab);
    say_to_decode(message);
    EXPECT_EQ(next_d(D::kCancelled).why, "the prefill side has token 100, expected 0 to 99");
    done->mutable_first()->set_tokens(0, 42);
    done->mutable_first()->add_logprobs()->add_top_ids(-1);
    say_to_decode(message);
    EXPECT_EQ(next_d(D::kCancelled).why, "the prefill side has token -1, expected 0 to 99");
    done->mutable_first()->clear_logprobs();
    done->mutable_first()->add_prompt_logprobs()->add_top_ids(kVocab + 1);
    say_to_decode(message);
    EXPECT_EQ(next_d(D::kCancelled).why, "the prefill side has token 101, expected 0 to 99");
    decode_->cancel(kId, 1, 0, "the client is gone");
    next_p(P::kCancelled);
    next_p(P::kReleased);
    next_d(D::kReleased);
    expect_quiet();
}

TEST_F(Checks, AttemptsThatCannotBeAreDropped) {
    proto::KvMessage message;
    message.mutable_announce()->set_id(kId);
    for (const uint32_t attempt : {0u, kMaxAttempts + 1, ~0u}) {
        message.mutable_announce()->set_attempt(attempt);
        p_->send_raw({1, comm::kv_port(true, 0)}, 0, message);
    }
    p_->send_raw({1, comm::kv_port(true, 0)}, 0, {});
    expect_quiet();
    message.mutable_announce()->set_attempt(kMaxAttempts);
    say_to_decode(message);
    EXPECT_EQ(next_d(D::kAnnounced).attempt, kMaxAttempts);
}

TEST_F(Checks, ARetractionThatCannotBeIsRefused) {
    push_until_writing();
    proto::KvMessage message;
    auto* retract = message.mutable_retract();
    retract->mutable_request()->set_id(kId);
    retract->mutable_request()->add_prompt(kVocab);
    retract->set_attempt(2);
    say_to_prefill(message);
    EXPECT_EQ(next_d(D::kCancelled).why,
              "token 100 of a prompt that is to be computed again, expected 0 to 99");
    retract->mutable_request()->set_prompt(0, 1);
    retract->set_attempt(1);  // the one that is under way
    say_to_prefill(message);
    expect_quiet();
    prefill_->begin(kId, 1, 0, kTokens, Mode::kPush);  // nor is it begun twice
    EXPECT_EQ(next_p(P::kCancelled).why, "this attempt has begun already");
    done();
    p_->let_copies_go();
    next_d(D::kReady);
}

}  // namespace
}  // namespace aerie::transfer
