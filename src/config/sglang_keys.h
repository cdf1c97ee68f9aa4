// Server arguments of SGLang that mean nothing here, so that its configurations can be used as they
// are: accepted with a warning.
#pragma once

#include <string_view>

namespace aerie {

bool is_sglang_key(std::string_view snake_case_name);

// A value that SGLang has for a key of ours and aerie does not: the word that is used in its place,
// with a warning. Null where there is none.
const char* replacement_of_sglang_value(std::string_view key, std::string_view value);

}  // namespace aerie
