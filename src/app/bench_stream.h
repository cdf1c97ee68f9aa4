// The stream of one completion, as an OpenAI-protocol server sends it: server-sent events in,
// tokens out. No sockets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace aerie::bench {

// Cuts a stream of bytes into events. https://html.spec.whatwg.org/multipage/server-sent-events.html
class SseParser {
  public:
    // Appends the data of each event that these bytes complete; lines may end in LF or CR LF.
    void feed(std::string_view bytes, std::vector<std::string>& events);

  private:
    void line(std::string_view text, std::vector<std::string>& events);

    std::string unfinished_;  // the beginning of a line
    std::string data_;
    bool has_data_ = false;
};

class CompletionStream {
  public:
    // The number of tokens that came with these bytes. Where the server sends token_ids they are
    // counted; where it does not, each chunk with text counts as one.
    int feed(std::string_view bytes);

    bool done() const { return done_; }                 // [DONE] has come
    const std::string& failure() const { return failure_; }  // of an error event, or no JSON
    int num_tokens() const { return num_tokens_; }
    bool has_token_ids() const { return has_token_ids_; }
    int64_t usage_tokens() const { return usage_tokens_; }  // completion_tokens; -1: not told
    int64_t cached_tokens() const { return cached_tokens_; }  // of the prompt; 0 where not told

    // Why this is not the whole answer of `expected` tokens; empty where it is.
    std::string why_incomplete(int expected) const;

  private:
    int count(const Json& event);

    SseParser parser_;
    std::vector<std::string> events_;
    bool done_ = false, has_token_ids_ = false;
    int num_tokens_ = 0;
    int64_t usage_tokens_ = -1, cached_tokens_ = 0;
    std::string failure_, finish_reason_;
};

// The message in an error body of OpenAI's or SGLang's form; else the text itself, cut short.
std::string error_message(std::string_view body);

}  // namespace aerie::bench
