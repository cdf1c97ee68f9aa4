// Finds the first match of patterns that end an output, in text that comes in pieces. However the
// text is cut, the pieces that are let through are the same text, and no part of a match is among
// them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace aerie::parse {

// PCRE2's syntax, UTF-8, matches are not empty. The match that begins first wins, of several at the
// same place that of the first pattern. What may become a match is held back until it cannot, which
// for a pattern such as "a.*" is the end of the output. A match that needs too much work counts as
// none. One thread.
class StopRegexes {
  public:
    // keep_match: the match itself is let through. The error names the pattern and the place in it.
    static Result<StopRegexes> compile(const std::vector<std::string>& patterns, bool keep_match);
    ~StopRegexes();
    StopRegexes(StopRegexes&&) noexcept;

    struct Found {
        std::string text;                    // let through
        std::optional<std::string> matched;  // the pattern; then the output has ended
    };
    Found push(std::string_view text);  // whole characters
    Found pass(std::string_view text);  // lets text through that cannot end the output
    Found finish();                     // no more text comes

  private:
    struct Pattern;
    StopRegexes();
    Found look(bool is_last);

    std::vector<Pattern> patterns_;
    bool keep_match_ = false;
    std::string text_;      // all so far: what looks behind sees it
    size_t num_told_ = 0;   // bytes of it that were let through
};

}  // namespace aerie::parse
