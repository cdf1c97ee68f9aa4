#include "frontend/generation.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace aerie::frontend {

using api::ApiError;
using api::Piece;

Generation::Generation(api::Call call, const std::vector<EncodedPrompt>& prompts,
                       const Tokenizer& tokenizer, std::unique_ptr<api::ReplyFormat> format,
                       Answer answer, metrics::FrontendMetrics metrics,
                       const GenerationOptions& options)
    : call_(std::move(call)),
      format_(std::move(format)),
      metrics_(metrics),
      options_(options),
      answer_(std::move(answer)) {
    for (const EncodedPrompt& prompt : prompts) {
        num_prompt_tokens_.push_back(static_cast<int>(prompt.ids.size()));
        std::span<const int32_t> told;
        if (call_.sampling.prompt_logprobs_from >= 0) told = prompt.ids;
        for (int k = 0; k < call_.n; ++k) {
            const auto i = static_cast<int>(choices_.size());
            choices_.push_back({.text = ChoiceText(tokenizer, call_, i, told), .gathered = {.choice = i}});
        }
    }
}

void Generation::set_dp_rank(int choice, int dp_rank) {
    std::lock_guard lock(mutex_);
    choices_[choice].gathered.dp_rank = dp_rank;
}

api::Usage Generation::usage() const {
    api::Usage usage;
    for (size_t prompt = 0; prompt < num_prompt_tokens_.size(); ++prompt) {
        usage.prompt_tokens += num_prompt_tokens_[prompt];
        // Of the choices of a prompt the one that was computed first had the fewest cached tokens.
        int num_cached = num_prompt_tokens_[prompt];
        bool known = false;
        for (int i = 0; i < call_.n; ++i) {
            const ChoiceText& text = choices_[prompt * call_.n + i].text;
            usage.completion_tokens += text.num_tokens();
            usage.reasoning_tokens += text.num_reasoning();
            if (text.num_tokens() == 0) continue;
            num_cached = std::min(num_cached, text.num_cached());
            known = true;
        }
        if (known) usage.cached_tokens += num_cached;
    }
    return usage;
}

void Generation::count_tokens(Choice& choice, int num_new) {
    if (num_new == 0) return;
    if (!std::exchange(prompts_counted_, true)) {
        for (const int count : num_prompt_tokens_) metrics_.prompt_tokens.add(count);
    }
    const TimePoint now = Clock::now();
    if (choice.num_counted_tokens == 0) {
        metrics_.time_to_first_token.observe(seconds_between(answer_.arrival(), now));
    } else {
        const double interval = seconds_between(choice.last_token, now) / num_new;
        for (int i = 0; i < num_new; ++i) metrics_.inter_token_latency.observe(interval);
    }
    choice.last_token = now;
    choice.num_counted_tokens += num_new;
    metrics_.generation_tokens.add(num_new);
}

void Generation::gather(Choice& choice, Piece piece) {
    Piece& all = choice.gathered;
    for (parse::Event& event : piece.events) parse::append(all.events, std::move(event));
    all.token_ids.insert(all.token_ids.end(), piece.token_ids.begin(), piece.token_ids.end());
    all.logits_hashes.insert(all.logits_hashes.end(), piece.logits_hashes.begin(),
                             piece.logits_hashes.end());
    std::move(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(all.logprobs));
    std::move(piece.prompt_logprobs.begin(), piece.prompt_logprobs.end(),
              std::back_inserter(all.prompt_logprobs));
    all.num_tokens = piece.num_tokens;
    all.num_cached = piece.num_cached;
    all.finish = piece.finish;
    all.matched_string = std::move(piece.matched_string);
    all.matched_token = piece.matched_token;
}

void Generation::send_piece(Choice& choice) {
    if (!call_.stream) return;
    const bool is_end = choice.gathered.finish != FinishReason::kNone;
    const bool is_due = !choice.gathered.events.empty() &&
                        (choice.num_unsent_tokens >= options_.stream_interval ||
                         choice.num_unsent_tokens == choice.text.num_tokens());
    if (!is_end && !is_due) return;
    if (!std::exchange(streaming_, true)) answer_.start_events();
    answer_.write(format_->stream_piece(choice.gathered, usage()));
    choice.gathered = {.choice = choice.gathered.choice,
                       .num_tokens = choice.gathered.num_tokens,
                       .num_cached = choice.gathered.num_cached,
                       .num_decode_steps = choice.gathered.num_decode_steps,
                       .dp_rank = choice.gathered.dp_rank};
    choice.num_unsent_tokens = 0;
}

void Generation::end_choice(int index, bool aborted, Ended& ended) {
    Choice& choice = choices_[index];
    choice.ended = true;
    ended.choices.push_back(index);
    metrics_.num_requests.add();
    metrics_.cached_tokens.add(choice.text.num_cached());
    metrics_.e2e_request_latency.observe(seconds_since(answer_.arrival()));
    if (aborted) metrics_.num_aborted_requests.add();
}

// `known_to_engine`: the choice that the engine has ended itself; -1: none.
void Generation::end_all(Ended& ended, int known_to_engine) {
    done_ = true;
    for (int i = 0; i < num_choices(); ++i) {
        if (choices_[i].ended) continue;
        end_choice(i, true, ended);
        if (i != known_to_engine) ended.to_abort.push_back(i);
    }
}

void Generation::finish_if_all_ended() {
    if (!std::all_of(choices_.begin(), choices_.end(), [](const Choice& c) { return c.ended; })) {
        return;
    }
    done_ = true;
    if (call_.stream) {
        answer_.write(format_->stream_end(usage()));
        answer_.finish();
        return;
    }
    std::vector<Piece> pieces;
    for (Choice& choice : choices_) pieces.push_back(std::move(choice.gathered));
    answer_.send(200, format_->whole(pieces, usage()));
}

void Generation::fail_locked(const ApiError& error, int known_to_engine, Ended& ended) {
    end_all(ended, known_to_engine);
    if (streaming_) {
        answer_.write(format_->stream_error(error));
        answer_.finish();
    } else {
        answer_.send(format_->status(error), format_->error(error));
    }
}

Generation::Ended Generation::take(int index, const TokenOut& out) {
    std::lock_guard lock(mutex_);
    Ended ended;
    Choice& choice = choices_[index];
    if (done_ || choice.ended) return ended;
    const bool engine_ended = out.finish != FinishReason::kNone;
    const int num_before = choice.text.num_tokens();
    auto piece = choice.text.take(out);
    if (!piece) {
        log_error("{}", piece.message());
        fail_locked({.status = 500, .message = piece.message()}, engine_ended ? index : -1, ended);
        return ended;
    }
    const int num_new = choice.text.num_tokens() - num_before;
    count_tokens(choice, num_new);
    choice.num_unsent_tokens += num_new;
    const bool stopped = piece->finish == FinishReason::kStop;
    gather(choice, std::move(*piece));
    choice.gathered.num_decode_steps = out.num_decode_steps;
    if (!stopped && out.finish == FinishReason::kAbort && !out.error.empty()) {
        choice.gathered.finish = FinishReason::kNone;
        const int status = out.error_kind == ErrorKind::kBadRequest ? 400 : 503;
        fail_locked({.status = status, .message = out.error}, index, ended);
        return ended;
    }
    send_piece(choice);
    if (stopped || engine_ended) {
        end_choice(index, !stopped && out.finish == FinishReason::kAbort, ended);
        if (!engine_ended) ended.to_abort.push_back(index);
        finish_if_all_ended();
    }
    return ended;
}

Generation::Ended Generation::fail(const ApiError& error) {
    std::lock_guard lock(mutex_);
    Ended ended;
    if (!done_) fail_locked(error, -1, ended);
    return ended;
}

Generation::Ended Generation::client_gone() {
    std::lock_guard lock(mutex_);
    Ended ended;
    if (!done_) end_all(ended, -1);
    return ended;
}

Generation::Ended Generation::abort() {
    std::lock_guard lock(mutex_);
    Ended ended;
    if (done_) return ended;
    for (int i = 0; i < num_choices(); ++i) {
        if (choices_[i].ended) continue;
        choices_[i].gathered.finish = FinishReason::kAbort;
        send_piece(choices_[i]);
        end_choice(i, true, ended);
        ended.to_abort.push_back(i);
    }
    finish_if_all_ended();
    return ended;
}

}  // namespace aerie::frontend
