#include "request/convert.h"

#include <gtest/gtest.h>

#include "proto/engine.pb.h"

namespace aerie {
namespace {

TEST(Convert, ARequestKeepsEveryField) {
    Request request;
    request.id = 1234567890123;
    request.prompt = {1, 2, 128814};
    request.sampling = {.temperature = 0.25,
                        .top_p = 0.5,
                        .top_k = 40,
                        .min_p = 0.125,
                        .seed = 0xfedcba9876543210,
                        .choice = 3,
                        .max_new_tokens = 77,
                        .min_new_tokens = 5,
                        .ignore_eos = true,
                        .stop_token_ids = {9, 10},
                        .frequency_penalty = 0.5,
                        .presence_penalty = -0.25,
                        .repetition_penalty = 1.5,
                        .logit_bias = {{7, -100}, {8, 0.5}},
                        .num_top_logprobs = 3,
                        .logprob_ids = {4, 5},
                        .prompt_logprobs_from = 7,
                        .grammar = {Grammar::Kind::kRegex, "[a-z]+", true}};
    request.hash_logits = true;
    request.prefill_replica = 2;
    request.decode_replica = 1;
    request.priority = -3;
    request.cache_salt = "tenant";
    proto::AddRequest message;
    to_proto(request, message);
    const Request back = from_proto(message);
    EXPECT_EQ(back.id, request.id);
    EXPECT_EQ(back.prompt, request.prompt);
    EXPECT_EQ(back.hash_logits, request.hash_logits);
    EXPECT_EQ(back.prefill_replica, request.prefill_replica);
    EXPECT_EQ(back.decode_replica, request.decode_replica);
    EXPECT_EQ(back.priority, request.priority);
    EXPECT_EQ(back.cache_salt, request.cache_salt);
    EXPECT_EQ(back.sampling.temperature, request.sampling.temperature);
    EXPECT_EQ(back.sampling.top_p, request.sampling.top_p);
    EXPECT_EQ(back.sampling.top_k, request.sampling.top_k);
    EXPECT_EQ(back.sampling.min_p, request.sampling.min_p);
    EXPECT_EQ(back.sampling.seed, request.sampling.seed);
    EXPECT_EQ(back.sampling.choice, request.sampling.choice);
    EXPECT_EQ(back.sampling.max_new_tokens, request.sampling.max_new_tokens);
    EXPECT_EQ(back.sampling.min_new_tokens, request.sampling.min_new_tokens);
    EXPECT_EQ(back.sampling.ignore_eos, request.sampling.ignore_eos);
    EXPECT_EQ(back.sampling.stop_token_ids, request.sampling.stop_token_ids);
    EXPECT_EQ(back.sampling.frequency_penalty, request.sampling.frequency_penalty);
    EXPECT_EQ(back.sampling.presence_penalty, request.sampling.presence_penalty);
    EXPECT_EQ(back.sampling.repetition_penalty, request.sampling.repetition_penalty);
    EXPECT_EQ(back.sampling.logit_bias, request.sampling.logit_bias);
    EXPECT_EQ(back.sampling.num_top_logprobs, request.sampling.num_top_logprobs);
    EXPECT_EQ(back.sampling.prompt_logprobs_from, 7);
    EXPECT_EQ(back.sampling.logprob_ids, request.sampling.logprob_ids);
    EXPECT_EQ(back.sampling.grammar, request.sampling.grammar);
}

TEST(Convert, ATokenKeepsEveryFieldAndEachFinishReason) {
    for (const FinishReason finish : {FinishReason::kNone, FinishReason::kStop,
                                      FinishReason::kLength, FinishReason::kAbort}) {
        const TokenOut token{.id = 5,
                             .position = 6,
                             .tokens = {7, 8},
                             .finish = finish,
                             .matched_token = 8,
                             .error = "why",
                             .error_kind = ErrorKind::kBadRequest,
                             .cached_tokens = 64,
                             .logits_hashes = {0xffffffffffffffff, 1},
                             .kv_hashes = {2, 0xffffffffffffffff},
                             .logprobs = {{-0.5f, {{3, -0.25f}, {4, -2}}, {-7}}, {-1, {}, {}}},
                             .prompt_logprobs = {{-2, {{5, -2}}, {}}},
                             .mtp_hidden = std::string("\0row", 4),
                             .num_decode_steps = 3};
        proto::TokenOut message;
        to_proto(token, message);
        const TokenOut back = from_proto(message);
        EXPECT_EQ(back.id, token.id);
        EXPECT_EQ(back.position, token.position);
        EXPECT_EQ(back.tokens, token.tokens);
        EXPECT_EQ(back.finish, token.finish);
        EXPECT_EQ(back.matched_token, token.matched_token);
        EXPECT_EQ(back.error, token.error);
        EXPECT_EQ(back.error_kind, token.error_kind);
        EXPECT_EQ(back.cached_tokens, token.cached_tokens);
        EXPECT_EQ(back.logits_hashes, token.logits_hashes);
        EXPECT_EQ(back.kv_hashes, token.kv_hashes);
        EXPECT_EQ(back.logprobs, token.logprobs);
        EXPECT_EQ(back.prompt_logprobs, token.prompt_logprobs);
        EXPECT_EQ(back.mtp_hidden, token.mtp_hidden);
        EXPECT_EQ(back.num_decode_steps, token.num_decode_steps);
    }
}

TEST(Convert, AnUnknownFinishReasonIsAnAbort) {
    proto::TokenOut message;
    message.set_finish(static_cast<proto::FinishReason>(17));
    EXPECT_EQ(from_proto(message).finish, FinishReason::kAbort);
}

}  // namespace
}  // namespace aerie
