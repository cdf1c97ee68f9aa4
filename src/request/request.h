// Plain data that the frontend and the engine share: what is asked, and what comes back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace aerie {

using RequestId = uint64_t;  // given by the frontend, never the client's; one a choice (n)

struct LogitBias {
    int32_t id = 0;
    float bias = 0;  // added to the token's logit
    bool operator==(const LogitBias&) const = default;
};

// What the output must be made of; grammar/compiler.h reads it.
struct Grammar {
    enum class Kind : uint8_t {
        kNone = 0,
        kJsonSchema,     // JSON by the schema that `text` is
        kRegex,          // all of the output matches `text`
        kEbnf,           // a GBNF grammar with the rule "root"
        kStructuralTag,  // JSON: a structural tag, or SGLang's older form (triggers, structures)
        kToolCalls,      // JSON: a structural tag whose tokens are named (parse/tool_grammar.h)
    };
    Kind kind = Kind::kNone;
    std::string text;
    bool after_reasoning = false;  // begins behind the output's first </think>
    bool operator==(const Grammar&) const = default;
};

struct SamplingParams {
    double temperature = 1.0;  // 0: greedy
    double top_p = 1.0;        // (0, 1]
    int top_k = -1;            // -1: all
    double min_p = 0.0;        // [0, 1]
    uint64_t seed = 0;         // always set: the frontend draws one where the client has none
    int choice = 0;            // index among the n choices; enters the random numbers
    int max_new_tokens = 16;
    int min_new_tokens = 0;
    bool ignore_eos = false;
    std::vector<int32_t> stop_token_ids;  // beside the model's own eos

    // Of tokens that the output holds already (not the prompt); see sample/sampler.h.
    double frequency_penalty = 0;
    double presence_penalty = 0;
    double repetition_penalty = 1;  // > 0
    std::vector<LogitBias> logit_bias;

    int num_top_logprobs = -1;             // told with each token; -1: no logprobs at all
    std::vector<int32_t> logprob_ids;      // ids whose logprobs are told beside these
    // Position of the prompt from whose token on its logprobs are told too; -1: none. What comes
    // before it may be found in the prefix cache, the rest is computed.
    int prompt_logprobs_from = -1;
    Grammar grammar = {};
};

struct Request {
    RequestId id = 0;
    std::vector<int32_t> prompt;  // token ids, not empty
    SamplingParams sampling;
    // Test hook: a 64-bit hash of the logits' bits at every position that is computed; what the
    // prefix cache holds (TokenOut::cached_tokens) is not computed and has none.
    bool hash_logits = false;
    int prefill_replica = 0;   // chosen by the frontend; equal where a unified replica does both
    int decode_replica = 0;
    int priority = 0;        // larger is sooner, or smaller where the policy is told so
    std::string cache_salt;  // prefixes are shared among requests with the same salt only
};

enum class FinishReason : uint8_t { kNone = 0, kStop, kLength, kAbort };

// Whose fault an error is: the client may try again later, or never.
enum class ErrorKind : uint8_t { kUnavailable = 0, kBadRequest };

// What the model thought of one output token: natural logarithms of its own distribution's
// probabilities (temperature 1, before penalties, bias and filters).
struct TokenLogprobs {
    struct Entry {
        int32_t id = 0;
        float logprob = 0;
        bool operator==(const Entry&) const = default;
    };
    float logprob = 0;         // of the token itself
    std::vector<Entry> top;    // num_top_logprobs, the most probable first
    std::vector<float> asked;  // [logprob_ids]
    bool operator==(const TokenLogprobs&) const = default;
};

// Tokens that a request has gained in one step. `position` counts output tokens from 0.
struct TokenOut {
    RequestId id = 0;
    int position = 0;            // of the first of `tokens`
    std::vector<int32_t> tokens; // may be empty where only the finish is told
    FinishReason finish = FinishReason::kNone;
    int32_t matched_token = -1;  // the stop or eos token that ended it; it is in `tokens` too
    std::string error;           // kAbort: why, for the client
    ErrorKind error_kind = ErrorKind::kUnavailable;
    int cached_tokens = 0;       // prompt tokens that were not computed
    std::vector<uint64_t> logits_hashes;  // hash_logits: one a computed position, in order
    // hash_logits, with the first token, where KV has moved: of the prompt's KV one hash a layer as
    // prefill has computed it, then one a layer as it has arrived.
    std::vector<uint64_t> kv_hashes;
    std::vector<TokenLogprobs> logprobs = {};  // [tokens], where they are asked for
    // With the first token: of the prompt's tokens from max(prompt_logprobs_from, 1) on.
    std::vector<TokenLogprobs> prompt_logprobs = {};
    // From prefill to decode, with MTP: the final hidden row of the last position that is computed,
    // compute type [hidden_size]; drafting goes on from it.
    std::string mtp_hidden = {};
    int num_decode_steps = 0;  // that the output took until now; with MTP fewer than its tokens
};

}  // namespace aerie
