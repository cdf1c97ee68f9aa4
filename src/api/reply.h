// ReplyFormat: how an API writes what the engine gives. One object for each call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/error.h"
#include "parse/output_parser.h"
#include "request/request.h"

namespace aerie::api {

// Logprobs of one token, with the texts of the ids.
struct TokenLogprob {
    struct Entry {
        int32_t id = 0;
        std::string text = {};  // its bytes, which need not be whole characters
        float logprob = 0;
    };
    int32_t id = 0;
    std::string text = {};
    float logprob = 0;
    bool predicted = true;  // false: the first token of a prompt, which has no logprob
    bool shown = true;      // false: of a prompt whose echo leaves it out
    std::vector<Entry> top = {};
    std::vector<Entry> asked = {};  // SamplingParams::logprob_ids
};

// What one choice has gained, or all that it has.
struct Piece {
    int choice = 0;    // index among all choices of the call
    parse::Events events = {};  // what its text is; whole characters
    std::vector<int32_t> token_ids = {};       // only where the call asks for them
    std::vector<uint64_t> logits_hashes = {};  // likewise
    std::vector<TokenLogprob> logprobs = {};   // likewise; one for each token
    std::vector<TokenLogprob> prompt_logprobs = {};  // likewise; with the first tokens
    int num_tokens = 0, num_cached = 0;  // of the choice so far
    int num_decode_steps = 0;            // likewise; with MTP fewer than its tokens
    int dp_rank = 0;                     // of the replica that decodes it
    FinishReason finish = FinishReason::kNone;
    std::string matched_string = {};  // what ended it; empty: none
    int32_t matched_token = -1;  // likewise; -1: none
};

struct Usage {
    int64_t prompt_tokens = 0;  // each prompt once, however many choices it has
    int64_t completion_tokens = 0;
    int64_t cached_tokens = 0;
    int64_t reasoning_tokens = 0;  // of the completion
};

struct Body {
    std::string content_type, text;
};

class ReplyFormat {
  public:
    virtual ~ReplyFormat() = default;

    virtual Body error(const ApiError& error) const = 0;
    virtual int status(const ApiError& error) const { return error.status; }  // HTTP
    // `choices` by index, each finished.
    virtual Body whole(const std::vector<Piece>& choices, const Usage& usage) const = 0;

    // The body of a stream, part by part. `usage`: so far.
    virtual std::string stream_piece(const Piece& piece, const Usage& usage) = 0;
    virtual std::string stream_end(const Usage& usage) = 0;
    virtual std::string stream_error(const ApiError& error) = 0;  // and the end
};

}  // namespace aerie::api
