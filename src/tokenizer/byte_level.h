// The byte-level alphabet of GPT-2's vocabularies: every byte has a printable character, so that
// any bytes can be written as a token in a JSON file.
#pragma once

#include <string>
#include <string_view>

namespace aerie {

// The bytes that a token of a byte-level vocabulary stands for. A token with a character outside
// the alphabet (an added token such as "<｜User｜>") stands for its own UTF-8 bytes.
std::string byte_level_bytes(std::string_view token);

// True where every character of the token is in the alphabet.
bool is_byte_level(std::string_view token);

}  // namespace aerie
