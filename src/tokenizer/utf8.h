// UTF-8 as Python and Rust repair it: each maximal part that cannot be a character is one U+FFFD.
#pragma once

#include <string>
#include <string_view>

namespace aerie {

inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";

// The length of the longest valid prefix, in bytes.
size_t valid_utf8_prefix(std::string_view bytes);

// The number of bytes at the end that begin a character which is not complete yet: 0 to 3.
size_t incomplete_utf8_suffix(std::string_view bytes);

// Appends the bytes with their invalid parts replaced.
void append_repaired_utf8(std::string& out, std::string_view bytes);

}  // namespace aerie
