// Parts that both repairs need. Only paste_*.cc and toml_repair.cc, json_repair.cc include this.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aerie {

// Collects why a line was changed, each reason once.
class Reasons {
  public:
    void add(std::string_view reason);
    std::string text() const;

  private:
    std::vector<std::string> reasons_;
};

std::string_view trimmed(std::string_view text);
bool is_word_start(char c);
bool is_word(char c);  // letters, digits, _ - . /
bool is_number(std::string_view text);

// Typographic quotes, full-width signs, odd spaces and HTML entities as ASCII.
std::string plain_characters(std::string_view text, Reasons& reasons);

// A word without quotes as both formats want it: true, false and numbers as they are (Python's True
// in lower case), everything else in double quotes.
std::string quoted_word(std::string_view word, Reasons& reasons);

}  // namespace aerie
