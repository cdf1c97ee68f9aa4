// Text as Python's str sees it: a sequence of code points. Strings here are valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace aerie::jinja {

void append_utf8(std::string& out, char32_t code);
// The code point at the byte `at`; moves `at` behind it.
char32_t next_code(std::string_view text, size_t& at);
size_t num_codes(std::string_view text);
// The byte where the code point number `idx` begins; text.size() where there are fewer.
size_t byte_of_code(std::string_view text, size_t idx);
std::vector<std::string_view> characters(std::string_view text);

bool is_space(char32_t code);      // str.isspace()
bool is_printable(char32_t code);  // str.isprintable()
bool is_alpha(char32_t code);
bool is_decimal(char32_t code);    // Nd
std::string_view lstrip(std::string_view text);
std::string_view rstrip(std::string_view text);
// Takes the characters of `set` away on the left and on the right.
std::string_view strip(std::string_view text, std::string_view set, bool left, bool right);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);  // str.capitalize()
std::string title_method(std::string_view text);  // str.title(): a letter after a non-letter is upper

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);
// str.split() without a separator, and with one. max_split < 0: no limit.
std::vector<std::string_view> split_spaces(std::string_view text, int64_t max_split);
std::vector<std::string_view> split_by(std::string_view text, std::string_view separator,
                                       int64_t max_split);
std::vector<std::string_view> rsplit_spaces(std::string_view text, int64_t max_split);
std::vector<std::string_view> rsplit_by(std::string_view text, std::string_view separator,
                                        int64_t max_split);

// Linear in both lengths, unlike std::string_view::find. npos where it is not there.
size_t find_text(std::string_view text, std::string_view wanted, size_t from = 0);
size_t count_text(std::string_view text, std::string_view wanted);  // without overlaps

// str.replace(); max_count < 0: all of them. Throws Failure where the result is too long.
std::string replace_text(std::string_view text, std::string_view old, std::string_view with,
                         int64_t max_count);

std::string repr_string(std::string_view text);
std::string repr_float(double value);

}  // namespace aerie::jinja
