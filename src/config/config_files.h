// The two files as text → the values they give, with places for messages. Syntax errors get line,
// column, and what was probably meant. Knows nothing of keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace aerie {

struct GivenValue {
    std::string section;  // "" at the top level
    std::string name;
    Json value;
    int line = 0;
};

// `path` is only for messages. A syntax error is added to `errors`, and nothing is returned.
std::vector<GivenValue> parse_toml(const std::string& path, const std::string& text,
                                   std::vector<std::string>& errors);
std::vector<GivenValue> parse_json_settings(const std::string& path, const std::string& text,
                                            std::vector<std::string>& errors);

}  // namespace aerie
