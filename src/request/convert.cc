#include "request/convert.h"

#include <algorithm>

#include "proto/engine.pb.h"

namespace aerie {
namespace {

template <typename Repeated, typename T>
void fill(Repeated& into, const std::vector<T>& from) {
    into.Assign(from.begin(), from.end());
}

FinishReason finish_of(proto::FinishReason finish) {
    switch (finish) {
        case proto::FINISH_NONE: return FinishReason::kNone;
        case proto::FINISH_STOP: return FinishReason::kStop;
        case proto::FINISH_LENGTH: return FinishReason::kLength;
        default: return FinishReason::kAbort;
    }
}

// Of a kind that this version does not know the leader says that there is none.
Grammar::Kind kind_of(uint32_t kind) {
    return static_cast<Grammar::Kind>(std::min<uint32_t>(kind, UINT8_MAX));
}

using ProtoLogprobs = google::protobuf::RepeatedPtrField<proto::TokenLogprobs>;

std::vector<TokenLogprobs> logprobs_of(const ProtoLogprobs& tokens) {
    std::vector<TokenLogprobs> all;
    for (const proto::TokenLogprobs& given : tokens) {
        TokenLogprobs& added = all.emplace_back();
        added.logprob = given.logprob();
        const int num_top = std::min(given.top_ids_size(), given.top_logprobs_size());
        for (int i = 0; i < num_top; ++i) {
            added.top.push_back({given.top_ids(i), given.top_logprobs(i)});
        }
        added.asked.assign(given.asked().begin(), given.asked().end());
    }
    return all;
}

void fill(ProtoLogprobs& into, const std::vector<TokenLogprobs>& tokens) {
    for (const TokenLogprobs& logprobs : tokens) {
        proto::TokenLogprobs& added = *into.Add();
        added.set_logprob(logprobs.logprob);
        for (const auto& entry : logprobs.top) {
            added.add_top_ids(entry.id);
            added.add_top_logprobs(entry.logprob);
        }
        fill(*added.mutable_asked(), logprobs.asked);
    }
}

}  // namespace

void to_proto(const SamplingParams& sampling, proto::SamplingParams& into) {
    into.set_temperature(sampling.temperature);
    into.set_top_p(sampling.top_p);
    into.set_top_k(sampling.top_k);
    into.set_min_p(sampling.min_p);
    into.set_seed(sampling.seed);
    into.set_choice(sampling.choice);
    into.set_max_new_tokens(sampling.max_new_tokens);
    into.set_min_new_tokens(sampling.min_new_tokens);
    into.set_ignore_eos(sampling.ignore_eos);
    fill(*into.mutable_stop_token_ids(), sampling.stop_token_ids);
    into.set_frequency_penalty(sampling.frequency_penalty);
    into.set_presence_penalty(sampling.presence_penalty);
    into.set_repetition_penalty(sampling.repetition_penalty);
    for (const LogitBias& bias : sampling.logit_bias) {
        proto::LogitBias& added = *into.add_logit_bias();
        added.set_id(bias.id);
        added.set_bias(bias.bias);
    }
    into.set_num_top_logprobs(sampling.num_top_logprobs);
    fill(*into.mutable_logprob_ids(), sampling.logprob_ids);
    into.set_prompt_logprobs_from(sampling.prompt_logprobs_from);
    if (sampling.grammar.kind != Grammar::Kind::kNone) {
        into.mutable_grammar()->set_kind(static_cast<uint32_t>(sampling.grammar.kind));
        into.mutable_grammar()->set_text(sampling.grammar.text);
        into.mutable_grammar()->set_after_reasoning(sampling.grammar.after_reasoning);
    }
}

void to_proto(const Request& request, proto::AddRequest& into) {
    into.set_id(request.id);
    fill(*into.mutable_prompt(), request.prompt);
    to_proto(request.sampling, *into.mutable_sampling());
    into.set_hash_logits(request.hash_logits);
    into.set_prefill_replica(request.prefill_replica);
    into.set_decode_replica(request.decode_replica);
    into.set_priority(request.priority);
    into.set_cache_salt(request.cache_salt);
}

void to_proto(const TokenOut& token, proto::TokenOut& into) {
    into.set_id(token.id);
    into.set_position(token.position);
    fill(*into.mutable_tokens(), token.tokens);
    into.set_finish(static_cast<proto::FinishReason>(token.finish));
    into.set_matched_token(token.matched_token);
    into.set_error(token.error);
    into.set_error_kind(static_cast<proto::ErrorKind>(token.error_kind));
    into.set_cached_tokens(token.cached_tokens);
    fill(*into.mutable_logits_hashes(), token.logits_hashes);
    fill(*into.mutable_kv_hashes(), token.kv_hashes);
    fill(*into.mutable_logprobs(), token.logprobs);
    fill(*into.mutable_prompt_logprobs(), token.prompt_logprobs);
    into.set_mtp_hidden(token.mtp_hidden);
    into.set_num_decode_steps(token.num_decode_steps);
}

SamplingParams from_proto(const proto::SamplingParams& sampling) {
    SamplingParams params{.temperature = sampling.temperature(),
            .top_p = sampling.top_p(),
            .top_k = sampling.top_k(),
            .min_p = sampling.min_p(),
            .seed = sampling.seed(),
            .choice = sampling.choice(),
            .max_new_tokens = sampling.max_new_tokens(),
            .min_new_tokens = sampling.min_new_tokens(),
            .ignore_eos = sampling.ignore_eos(),
            .stop_token_ids = {sampling.stop_token_ids().begin(), sampling.stop_token_ids().end()},
            .frequency_penalty = sampling.frequency_penalty(),
            .presence_penalty = sampling.presence_penalty(),
            .repetition_penalty = sampling.repetition_penalty(),
            .logit_bias = {},
            .num_top_logprobs = sampling.num_top_logprobs(),
            .logprob_ids = {sampling.logprob_ids().begin(), sampling.logprob_ids().end()},
            .prompt_logprobs_from = sampling.prompt_logprobs_from(),
            .grammar = {.kind = kind_of(sampling.grammar().kind()),
                        .text = sampling.grammar().text(),
                        .after_reasoning = sampling.grammar().after_reasoning()}};
    if (!(params.repetition_penalty > 0)) params.repetition_penalty = 1;
    for (const auto& bias : sampling.logit_bias()) {
        params.logit_bias.push_back({bias.id(), bias.bias()});
    }
    return params;
}

Request from_proto(const proto::AddRequest& request) {
    return {.id = request.id(),
            .prompt = {request.prompt().begin(), request.prompt().end()},
            .sampling = from_proto(request.sampling()),
            .hash_logits = request.hash_logits(),
            .prefill_replica = request.prefill_replica(),
            .decode_replica = request.decode_replica(),
            .priority = request.priority(),
            .cache_salt = request.cache_salt()};
}

TokenOut from_proto(const proto::TokenOut& token) {
    return {.id = token.id(),
            .position = token.position(),
            .tokens = {token.tokens().begin(), token.tokens().end()},
            .finish = finish_of(token.finish()),
            .matched_token = token.matched_token(),
            .error = token.error(),
            .error_kind = token.error_kind() == proto::ERROR_BAD_REQUEST ? ErrorKind::kBadRequest
                                                                         : ErrorKind::kUnavailable,
            .cached_tokens = token.cached_tokens(),
            .logits_hashes = {token.logits_hashes().begin(), token.logits_hashes().end()},
            .kv_hashes = {token.kv_hashes().begin(), token.kv_hashes().end()},
            .logprobs = logprobs_of(token.logprobs()),
            .prompt_logprobs = logprobs_of(token.prompt_logprobs()),
            .mtp_hidden = token.mtp_hidden(),
            .num_decode_steps = token.num_decode_steps()};
}

TokenOut aborted(RequestId id, std::string why, ErrorKind kind) {
    TokenOut token;
    token.id = id;
    token.finish = FinishReason::kAbort;
    token.error = std::move(why);
    token.error_kind = kind;
    return token;
}

}  // namespace aerie
