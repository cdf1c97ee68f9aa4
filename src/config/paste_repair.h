// What a line that does not parse was probably meant to be. Text copied from web pages loses "="
// and quotes and gains typographic ones; the repaired line is shown to the user, and parsed in
// place of the broken one, so that one run reports every mistake of a file. A file that needed a
// repair is still an error.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace aerie {

struct Repair {
    int line;           // the line to replace, counted from 1; may lie before the one complained of
    std::string fixed;  // its new text
    std::string why;    // "the = is missing", "words need double quotes"
};

// `line`, counted from 1, is where the parser stopped. Nothing where no guess is at hand.
std::optional<Repair> repair_toml(const std::vector<std::string>& lines, int line);
std::optional<Repair> repair_json(const std::vector<std::string>& lines, int line);

}  // namespace aerie
