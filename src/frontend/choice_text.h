// ChoiceText: the tokens of one choice → its text, and where that ends.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/call.h"
#include "api/reply.h"
#include "base/result.h"
#include "parse/output_parser.h"
#include "parse/stop_regexes.h"
#include "parse/stop_strings.h"
#include "request/request.h"
#include "tokenizer/tokenizer.h"

namespace aerie::frontend {

// Tokens → text → stop strings and patterns → reasoning, content and tool calls. However the tokens are cut into
// TokenOuts, the pieces together are the same. One thread at a time.
class ChoiceText {
  public:
    // `choice`: its index among the call's choices. prompt: needed where its logprobs are told. The
    // tokenizer must outlive this.
    ChoiceText(const Tokenizer& tokenizer, const api::Call& call, int choice,
               std::span<const int32_t> prompt = {});

    // What the choice gains by `out`. Where a stop string ends it, the piece is finished before the
    // engine's last token, and `out`'s tokens after that one are dropped. Tokens that are already
    // known (a host that died sends them again) are skipped; the error tells of missing ones.
    Result<api::Piece> take(const TokenOut& out);

    int num_tokens() const { return num_tokens_; }  // up to the one that ended the choice
    int num_reasoning() const { return num_reasoning_; }  // of these, before the reasoning's end
    int num_cached() const { return num_cached_; }

  private:
    // True where the token has completed a stop string.
    bool add_token(int32_t id, bool is_end, api::Piece& piece);
    bool add_text(const std::string& text, api::Piece& piece);
    // What stop strings have let through. True where the output has ended.
    bool let_through(std::string_view text, std::optional<std::string> matched, bool is_last,
                     api::Piece& piece);
    void end(FinishReason finish, api::Piece& piece);

    api::TokenLogprob with_texts(int32_t id, const TokenLogprobs& logprobs) const;
    void add_prompt_logprobs(const TokenOut& out, api::Piece& piece) const;

    const Tokenizer& tokenizer_;
    const api::Call& call_;
    const int choice_;
    const std::vector<int32_t> prompt_;
    IncrementalDecoder decoder_;
    StopStrings stops_;
    parse::StopRegexes stop_regexes_;
    parse::OutputParser parser_;
    int num_tokens_ = 0;
    int num_reasoning_ = 0;
    int num_cached_ = 0;
};

}  // namespace aerie::frontend
