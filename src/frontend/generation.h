// Generation: one call while it runs. It turns the tokens of its choices into the API's reply and
// decides when each, and all, have ended.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "api/call.h"
#include "api/reply.h"
#include "base/clock.h"
#include "frontend/answer.h"
#include "frontend/choice_text.h"
#include "metrics/components.h"

namespace aerie::frontend {

// A prompt as the engine takes it.
struct EncodedPrompt {
    std::vector<int32_t> ids;
    int max_new_tokens = 0;
};

struct GenerationOptions {
    int stream_interval = 1;  // tokens of a choice between two chunks
};

class Generation {
  public:
    // prompts: of the call.
    Generation(api::Call call, const std::vector<EncodedPrompt>& prompts, const Tokenizer& tokenizer,
               std::unique_ptr<api::ReplyFormat> format, Answer answer,
               metrics::FrontendMetrics metrics, const GenerationOptions& options);

    const api::Call& call() const { return call_; }
    int num_choices() const { return static_cast<int>(choices_.size()); }

    // Where a choice decodes; before its first token.
    void set_dp_rank(int choice, int dp_rank);

    // Which choices have ended by a call below: their requests are to be forgotten, and, where the
    // engine does not know yet, aborted.
    struct Ended {
        std::vector<int> choices;
        std::vector<int> to_abort;
    };

    // All may be called on any thread; once ended they do nothing.
    Ended take(int choice, const TokenOut& out);
    Ended fail(const api::ApiError& error);  // of one choice, or before dispatch: ends them all
    Ended client_gone();
    Ended abort();  // ends them with the finish reason "abort"

  private:
    struct Choice {
        ChoiceText text;
        api::Piece gathered;      // not streamed yet, or all of it
        int num_unsent_tokens = 0;
        int num_counted_tokens = 0;
        bool ended = false;
        TimePoint last_token = {};
    };

    void gather(Choice& choice, api::Piece piece);
    void send_piece(Choice& choice);
    void end_choice(int index, bool aborted, Ended& ended);
    void end_all(Ended& ended, int known_to_engine);
    void finish_if_all_ended();
    void fail_locked(const api::ApiError& error, int known_to_engine, Ended& ended);
    void count_tokens(Choice& choice, int num_new);
    api::Usage usage() const;

    const api::Call call_;
    std::vector<int> num_prompt_tokens_;
    const std::unique_ptr<api::ReplyFormat> format_;
    const metrics::FrontendMetrics metrics_;
    const GenerationOptions options_;

    std::mutex mutex_;
    Answer answer_;
    std::vector<Choice> choices_;  // [prompt * n + i]
    bool streaming_ = false;       // the head of a stream is out
    bool done_ = false;
    bool prompts_counted_ = false;  // in the metrics; not where the call is refused
};

}  // namespace aerie::frontend
