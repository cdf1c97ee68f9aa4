// A pattern of a tokenizer.json. These are written for Oniguruma's Ruby syntax, which is what the
// `tokenizers` library uses; translate_regex() says the same in PCRE2's, or refuses.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace aerie {

Result<std::string> translate_regex(std::string_view pattern);

// What one thread needs while it matches: PCRE2's match data and the stack of its JIT code.
class RegexScratch {
  public:
    RegexScratch();
    ~RegexScratch();
    RegexScratch(RegexScratch&&) noexcept;

  private:
    friend class Regex;
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

class Regex {
  public:
    static Result<Regex> compile(const std::string& pattern, bool literal);

    struct Match {
        size_t begin, end;  // bytes
    };
    // The first match in valid UTF-8 from the byte `from` on. A match that would need more work than
    // the limits allow counts as none.
    std::optional<Match> find(std::string_view text, size_t from, RegexScratch& scratch) const;

  private:
    struct Code;
    explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
    std::shared_ptr<const Code> code_;  // shared so that a Regex is a value; never written
};

}  // namespace aerie
