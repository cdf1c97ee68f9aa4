// Finds the strings that end an output, in text that comes in pieces. However the text is cut, the
// pieces that are let through are the same text, and no part of a stop string is among them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aerie {

// The stop string that ends first wins, and among those that end at the same place the longest.
// One thread.
class StopStrings {
  public:
    // `stops`: valid UTF-8, none empty. keep_match: the stop string itself is let through.
    StopStrings(std::vector<std::string> stops, bool keep_match);

    struct Result {
        std::string text;                    // let through
        std::optional<std::string> matched;  // then the output has ended
    };
    // `text`: whole characters.
    Result push(std::string_view text);
    // Lets text through that cannot end the output; nor can what was held back.
    std::string pass(std::string_view text);
    // The output has ended otherwise: what was held back.
    std::string finish();

  private:
    size_t num_to_hold(std::string_view text) const;  // bytes at the end that may begin a stop

    std::vector<std::string> stops_;
    bool keep_match_;
    std::string held_back_;
};

}  // namespace aerie
