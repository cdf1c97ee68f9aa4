// The command line of `aerie bench`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/bench_load.h"

namespace aerie::bench {

struct Options {
    std::string url = "http://127.0.0.1:30000";
    LoadShape load;
    std::string prompts;  // a file; empty: random ones
    bool json = false;
    std::string compare, versus;  // serve options; compare empty: one load on `url`
    int rounds = 3;
    double start_timeout_s = 300;  // from starting a server to its /health being 200
};

struct ParsedOptions {
    Options options;
    bool help = false;
    std::vector<std::string> errors;  // one line each: flag, value found, what was expected
};

// `arguments` are those after "bench".
ParsedOptions parse_options(const std::vector<std::string>& arguments);

std::string help_text();

// Splits at white space, except inside '…' or "…". The error names an open quote.
Result<std::vector<std::string>> split_words(const std::string& text);

}  // namespace aerie::bench
