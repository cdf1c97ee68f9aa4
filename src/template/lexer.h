// Cuts a template into tokens, with Jinja's rules for white space around tags already applied.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aerie::jinja {

struct Token {
    enum class Type {
        kData,
        kVariableBegin,
        kVariableEnd,
        kBlockBegin,
        kBlockEnd,
        kName,
        kString,   // text holds the value, escapes decoded
        kInteger,  // text holds the digits, without underscores
        kFloat,
        kOperator,
        kEnd
    };
    Type type = Type::kEnd;
    std::string text;
    int line = 1;
};

// Ends with a kEnd token. Throws Failure.
std::vector<Token> tokenize(std::string_view source);

}  // namespace aerie::jinja
