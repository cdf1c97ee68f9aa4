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
    std::string name;     // "": this is the table itself
    Json value;
    int line = 0;
};

struct GivenFile {
    std::vector<GivenValue> values;
    bool readable =
        true;  // false: a syntax error that no guess could repair; values are incomplete
};

// `path` is only for messages. Every syntax error is added to `errors`; where it is clear what was
// meant, reading goes on with that, so that later mistakes are found too.
GivenFile parse_toml(const std::string& path, const std::string& text,
                     std::vector<std::string>& errors);
GivenFile parse_json_settings(const std::string& path, const std::string& text,
                              std::vector<std::string>& errors);

}  // namespace aerie
