#include "frontend/choice_text.h"

#include <algorithm>
#include <utility>

namespace aerie::frontend {

ChoiceText::ChoiceText(const Tokenizer& tokenizer, const api::Call& call, int choice,
                       std::span<const int32_t> prompt)
    : tokenizer_(tokenizer),
      call_(call),
      choice_(choice),
      prompt_(prompt.begin(), prompt.end()),
      decoder_(tokenizer, call.skip_special_tokens),
      stops_(call.stop, call.no_stop_trim),
      stop_regexes_(parse::StopRegexes::compile(call.stop_regex, call.no_stop_trim).value()),
      parser_(call.parser) {}

bool ChoiceText::add_text(const std::string& text, api::Piece& piece) {
    if (num_tokens_ < call_.sampling.min_new_tokens) {
        parser_.push(stop_regexes_.pass(stops_.pass(text)).text, piece.events);
        return false;
    }
    StopStrings::Result result = stops_.push(text);
    return let_through(result.text, std::move(result.matched), /*is_last=*/false, piece);
}

bool ChoiceText::let_through(std::string_view text, std::optional<std::string> matched,
                             bool is_last, api::Piece& piece) {
    parse::StopRegexes::Found found = stop_regexes_.push(text);
    parser_.push(found.text, piece.events);
    if (!found.matched && (matched || is_last)) {
        found = stop_regexes_.finish();
        parser_.push(found.text, piece.events);
    }
    if (found.matched) matched = std::move(found.matched);  // it begins before the stop string
    if (matched) piece.matched_string = *matched;
    if (!matched && !parser_.ended()) return false;
    end(FinishReason::kStop, piece);
    return true;
}

void ChoiceText::end(FinishReason finish, api::Piece& piece) {
    parser_.finish(piece.events);
    piece.finish = finish;
}

bool ChoiceText::add_token(int32_t id, bool is_end, api::Piece& piece) {
    piece.num_tokens = ++num_tokens_;
    num_reasoning_ += parser_.in_reasoning();
    if (call_.return_token_ids) piece.token_ids.push_back(id);
    if (is_end && !call_.no_stop_trim) return false;
    return add_text(decoder_.push(id), piece);
}

api::TokenLogprob ChoiceText::with_texts(int32_t id, const TokenLogprobs& logprobs) const {
    const auto text_of = [this](int32_t token) {
        return std::string(tokenizer_.token_bytes(token));
    };
    api::TokenLogprob added;
    added.id = id;
    added.text = text_of(id);
    added.logprob = logprobs.logprob;
    for (const auto& entry : logprobs.top) {
        added.top.push_back({entry.id, text_of(entry.id), entry.logprob});
    }
    const auto& asked = call_.sampling.logprob_ids;
    for (size_t i = 0; i < asked.size() && i < logprobs.asked.size(); ++i) {
        added.asked.push_back({asked[i], text_of(asked[i]), logprobs.asked[i]});
    }
    return added;
}

// They come once, with the first token.
void ChoiceText::add_prompt_logprobs(const TokenOut& out, api::Piece& piece) const {
    const int from = call_.sampling.prompt_logprobs_from;
    if (from < 0 || prompt_.empty() || out.position > 0 || num_tokens_ > 0 || out.tokens.empty()) return;
    if (from == 0) {
        piece.prompt_logprobs.push_back(with_texts(prompt_[0], {}));
        piece.prompt_logprobs.back().predicted = false;
    }
    size_t position = static_cast<size_t>(std::max(from, 1));
    for (const TokenLogprobs& logprobs : out.prompt_logprobs) {
        if (position >= prompt_.size()) return;
        piece.prompt_logprobs.push_back(with_texts(prompt_[position++], logprobs));
    }
}

Result<api::Piece> ChoiceText::take(const TokenOut& out) {
    if (out.position > num_tokens_) {
        return error("tokens {} to {} of request {} are missing", num_tokens_, out.position - 1,
                     out.id);
    }
    api::Piece piece{.choice = choice_, .num_tokens = num_tokens_};
    num_cached_ = std::max(num_cached_, out.cached_tokens);
    piece.num_cached = num_cached_;
    if (call_.logits_hash) piece.logits_hashes = out.logits_hashes;
    add_prompt_logprobs(out, piece);
    for (size_t i = static_cast<size_t>(num_tokens_ - out.position); i < out.tokens.size(); ++i) {
        const bool is_end = out.finish == FinishReason::kStop && i + 1 == out.tokens.size() &&
                            out.tokens[i] == out.matched_token;
        if (i < out.logprobs.size()) piece.logprobs.push_back(with_texts(out.tokens[i], out.logprobs[i]));
        if (add_token(out.tokens[i], is_end, piece)) return piece;
    }
    if (out.finish == FinishReason::kNone) return piece;
    if (add_text(decoder_.finish(), piece)) return piece;
    if (let_through(stops_.finish(), std::nullopt, /*is_last=*/true, piece)) return piece;
    end(out.finish, piece);
    piece.matched_token = out.matched_token;
    return piece;
}

}  // namespace aerie::frontend
