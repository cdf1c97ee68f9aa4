#include "frontend/choice_text.h"

#include <algorithm>

namespace aerie::frontend {

ChoiceText::ChoiceText(const Tokenizer& tokenizer, const api::Call& call, int choice)
    : call_(call),
      choice_(choice),
      decoder_(tokenizer, call.skip_special_tokens),
      stops_(call.stop, call.no_stop_trim),
      parser_(call.parser) {}

bool ChoiceText::add_text(const std::string& text, api::Piece& piece) {
    if (num_tokens_ < call_.sampling.min_new_tokens) {
        parser_.push(stops_.pass(text), piece.events);
        return false;
    }
    StopStrings::Result result = stops_.push(text);
    parser_.push(result.text, piece.events);
    if (result.matched) piece.matched_string = *result.matched;
    if (!result.matched && !parser_.ended()) return false;
    end(FinishReason::kStop, piece);
    return true;
}

void ChoiceText::end(FinishReason finish, api::Piece& piece) {
    parser_.finish(piece.events);
    piece.finish = finish;
}

bool ChoiceText::add_token(int32_t id, bool is_end, api::Piece& piece) {
    ++num_tokens_;
    num_reasoning_ += parser_.in_reasoning();
    if (call_.return_token_ids) piece.token_ids.push_back(id);
    if (is_end && !call_.no_stop_trim) return false;
    return add_text(decoder_.push(id), piece);
}

Result<api::Piece> ChoiceText::take(const TokenOut& out) {
    if (out.position > num_tokens_) {
        return error("tokens {} to {} of request {} are missing", num_tokens_, out.position - 1,
                     out.id);
    }
    api::Piece piece{.choice = choice_};
    num_cached_ = std::max(num_cached_, out.cached_tokens);
    if (call_.logits_hash) piece.logits_hashes = out.logits_hashes;
    for (size_t i = static_cast<size_t>(num_tokens_ - out.position); i < out.tokens.size(); ++i) {
        const bool is_end = out.finish == FinishReason::kStop && i + 1 == out.tokens.size() &&
                            out.tokens[i] == out.matched_token;
        if (add_token(out.tokens[i], is_end, piece)) return piece;
    }
    if (out.finish == FinishReason::kNone) return piece;
    if (add_text(decoder_.finish(), piece)) return piece;
    parser_.push(stops_.finish(), piece.events);
    end(out.finish, piece);
    piece.matched_token = out.matched_token;
    return piece;
}

}  // namespace aerie::frontend
