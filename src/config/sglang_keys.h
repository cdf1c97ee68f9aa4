// Server arguments of SGLang that mean nothing here, so that its configurations can be used as they
// are: accepted with a warning.
#pragma once

#include <string_view>

namespace aerie {

bool is_sglang_key(std::string_view snake_case_name);

}  // namespace aerie
