#define PCRE2_CODE_UNIT_WIDTH 8
#include "template/python_text.h"

#include <locale.h>
#include <pcre2.h>
#include <string.h>
#include <wctype.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "template/budget.h"

namespace aerie::jinja {
namespace {

// Asks PCRE2's Unicode tables whether a character is in a class such as "\\p{L}".
class CharacterClass {
  public:
    explicit CharacterClass(const char* pattern) {
        int error = 0;
        PCRE2_SIZE at = 0;
        code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                              PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &at, nullptr);
        CHECK(code_, "the class {} does not compile", pattern);
    }
    bool holds(char32_t code) const {
        std::string text;
        append_utf8(text, code);
        pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
        const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                      0, 0, match, nullptr);
        pcre2_match_data_free(match);
        return found >= 0;
    }

  private:
    pcre2_code* code_;  // lives as long as the process
};

locale_t unicode_locale() {
    static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    CHECK(locale, "the locale C.UTF-8 is missing");
    return locale;
}

char32_t upper_code(char32_t code) {
    return code < 0x80 ? (code >= 'a' && code <= 'z' ? code - 32 : code)
                       : static_cast<char32_t>(towupper_l(code, unicode_locale()));
}
char32_t lower_code(char32_t code) {
    return code < 0x80 ? (code >= 'A' && code <= 'Z' ? code + 32 : code)
                       : static_cast<char32_t>(towlower_l(code, unicode_locale()));
}
bool is_cased(char32_t code) { return upper_code(code) != code || lower_code(code) != code; }

void append_upper(std::string& out, char32_t code) {
    if (code == 0xdf) {  // the one letter in common use whose upper case is two letters
        out += "SS";
    } else {
        append_utf8(out, upper_code(code));
    }
}

}  // namespace

void append_utf8(std::string& out, char32_t code) {
    if (code < 0x80) {
        out += static_cast<char>(code);
    } else if (code < 0x800) {
        out += static_cast<char>(0xc0 | code >> 6);
        out += static_cast<char>(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        out += static_cast<char>(0xe0 | code >> 12);
        out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
        out += static_cast<char>(0x80 | (code & 0x3f));
    } else {
        out += static_cast<char>(0xf0 | code >> 18);
        out += static_cast<char>(0x80 | (code >> 12 & 0x3f));
        out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
        out += static_cast<char>(0x80 | (code & 0x3f));
    }
}

char32_t next_code(std::string_view text, size_t& at) {
    const auto lead = static_cast<uint8_t>(text[at++]);
    if (lead < 0xc0) return lead;  // a stray continuation byte counts as one character
    const int more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    char32_t code = lead & (0x3f >> more);
    for (int i = 0; i < more && at < text.size(); ++i) {
        code = code << 6 | (static_cast<uint8_t>(text[at++]) & 0x3f);
    }
    return code;
}

size_t num_codes(std::string_view text) {
    return std::count_if(text.begin(), text.end(),
                         [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
}

size_t byte_of_code(std::string_view text, size_t idx) {
    size_t at = 0;
    while (idx > 0 && at < text.size()) {
        next_code(text, at);
        --idx;
    }
    return at;
}

std::vector<std::string_view> characters(std::string_view text) {
    std::vector<std::string_view> result;
    for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        next_code(text, at);
        result.push_back(text.substr(begin, at - begin));
    }
    return result;
}

bool is_space(char32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_printable(char32_t code) {
    if (code < 0x7f) return code >= 0x20;
    static const CharacterClass kOther("[\\p{C}\\p{Z}]");
    return !kOther.holds(code);
}

bool is_alpha(char32_t code) {
    if (code < 0x80) return (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
    static const CharacterClass kLetter("\\p{L}");
    return kLetter.holds(code);
}

bool is_decimal(char32_t code) {
    if (code < 0x80) return code >= '0' && code <= '9';
    static const CharacterClass kDecimal("\\p{Nd}");
    return kDecimal.holds(code);
}

namespace {

template <typename Predicate>
std::string_view strip_if(std::string_view text, bool left, bool right, Predicate drop) {
    while (left && !text.empty()) {
        size_t at = 0;
        if (!drop(next_code(text, at))) break;
        text.remove_prefix(at);
    }
    while (right && !text.empty()) {
        size_t begin = text.size() - 1;
        while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
        size_t at = begin;
        if (!drop(next_code(text, at))) break;
        text.remove_suffix(text.size() - begin);
    }
    return text;
}

}  // namespace

std::string_view lstrip(std::string_view text) { return strip_if(text, true, false, is_space); }
std::string_view rstrip(std::string_view text) { return strip_if(text, false, true, is_space); }

std::string_view strip(std::string_view text, std::string_view set, bool left, bool right) {
    std::vector<char32_t> codes;
    for (size_t at = 0; at < set.size();) codes.push_back(next_code(set, at));
    std::sort(codes.begin(), codes.end());
    return strip_if(text, left, right, [&](char32_t code) {
        return std::binary_search(codes.begin(), codes.end(), code);
    });
}

std::string to_upper(std::string_view text) {
    std::string out;
    for (size_t at = 0; at < text.size();) append_upper(out, next_code(text, at));
    return out;
}

std::string to_lower(std::string_view text) {
    std::string out;
    for (size_t at = 0; at < text.size();) append_utf8(out, lower_code(next_code(text, at)));
    return out;
}

std::string capitalize(std::string_view text) {
    if (text.empty()) return {};
    size_t at = 0;
    next_code(text, at);
    return to_upper(text.substr(0, at)) + to_lower(text.substr(at));
}

std::string title_method(std::string_view text) {
    std::string out;
    bool in_word = false;
    for (size_t at = 0; at < text.size();) {
        const char32_t code = next_code(text, at);
        if (in_word) {
            append_utf8(out, lower_code(code));
        } else {
            append_upper(out, code);
        }
        in_word = is_cased(code);
    }
    return out;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
    std::vector<std::string_view> lines;
    size_t begin = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t end = at;
        const char32_t code = next_code(text, at);
        const bool is_end = (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) ||
                            code == 0x85 || code == 0x2028 || code == 0x2029;
        if (!is_end) continue;
        if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
        lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
        begin = at;
    }
    if (begin < text.size()) lines.push_back(text.substr(begin));
    return lines;
}

std::vector<std::string_view> split_spaces(std::string_view text, int64_t max_split) {
    std::vector<std::string_view> parts;
    text = lstrip(text);
    while (!text.empty()) {
        if (max_split >= 0 && static_cast<int64_t>(parts.size()) >= max_split) {
            parts.push_back(rstrip(text));
            break;
        }
        size_t end = 0;
        for (size_t at = 0; at < text.size(); end = at) {
            if (is_space(next_code(text, at))) break;
        }
        parts.push_back(text.substr(0, end));
        text = lstrip(text.substr(end));
    }
    return parts;
}

std::vector<std::string_view> rsplit_spaces(std::string_view text, int64_t max_split) {
    std::vector<std::string_view> parts;
    text = rstrip(text);
    while (!text.empty()) {
        if (max_split >= 0 && static_cast<int64_t>(parts.size()) >= max_split) {
            parts.push_back(lstrip(text));
            break;
        }
        size_t begin = text.size();
        while (begin > 0) {
            size_t at = begin - 1;
            while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) --at;
            size_t end = at;
            if (is_space(next_code(text, end))) break;
            begin = at;
        }
        parts.push_back(text.substr(begin));
        text = rstrip(text.substr(0, begin));
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
}

std::vector<std::string_view> split_by(std::string_view text, std::string_view separator,
                                       int64_t max_split) {
    std::vector<std::string_view> parts;
    while (max_split < 0 || static_cast<int64_t>(parts.size()) < max_split) {
        const size_t at = find_text(text, separator);
        if (at == std::string_view::npos) break;
        parts.push_back(text.substr(0, at));
        text.remove_prefix(at + separator.size());
    }
    parts.push_back(text);
    return parts;
}

std::vector<std::string_view> rsplit_by(std::string_view text, std::string_view separator,
                                        int64_t max_split) {
    std::vector<std::string_view> parts;
    while (max_split < 0 || static_cast<int64_t>(parts.size()) < max_split) {
        const size_t at = text.rfind(separator);
        if (at == std::string_view::npos) break;
        parts.push_back(text.substr(at + separator.size()));
        text = text.substr(0, at);
    }
    parts.push_back(text);
    std::reverse(parts.begin(), parts.end());
    return parts;
}

size_t find_text(std::string_view text, std::string_view wanted, size_t from) {
    if (from > text.size()) return std::string_view::npos;
    if (wanted.empty()) return from;
    const void* found =
        memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
    return found ? static_cast<const char*>(found) - text.data() : std::string_view::npos;
}

size_t count_text(std::string_view text, std::string_view wanted) {
    if (wanted.empty()) return num_codes(text) + 1;
    size_t count = 0;
    for (size_t at = find_text(text, wanted); at != std::string_view::npos;
         at = find_text(text, wanted, at + wanted.size())) {
        ++count;
    }
    return count;
}

std::string replace_text(std::string_view text, std::string_view old, std::string_view with,
                         int64_t max_count) {
    auto count = static_cast<int64_t>(count_text(text, old));
    if (max_count >= 0) count = std::min(count, max_count);
    if (with.size() > old.size()) {
        const size_t growth = with.size() - old.size();
        charge_bytes(count > static_cast<int64_t>(kMaxStringBytes / growth)
                         ? kMaxStringBytes + 1
                         : text.size() + count * growth);
    }
    std::string out;
    size_t done = 0;
    for (int64_t i = 0; i < count; ++i) {
        // An empty text is found before each character and at the end.
        size_t at = find_text(text, old, done);
        if (old.empty() && i > 0) {
            at = done;
            next_code(text, at);
        }
        out.append(text.substr(done, at - done)).append(with);
        done = at + old.size();
    }
    return out.append(text.substr(done));
}

std::string repr_string(std::string_view text) {
    const bool double_quotes = text.find('\'') != std::string_view::npos &&
                               text.find('"') == std::string_view::npos;
    const char quote = double_quotes ? '"' : '\'';
    std::string out(1, quote);
    for (size_t at = 0; at < text.size();) {
        const char32_t code = next_code(text, at);
        if (code == static_cast<char32_t>(quote) || code == '\\') {
            out += '\\';
            out += static_cast<char>(code);
        } else if (code == '\n' || code == '\r' || code == '\t') {
            out += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
        } else if (is_printable(code)) {
            append_utf8(out, code);
        } else {
            const auto number = static_cast<uint32_t>(code);
            out += number < 0x100     ? fmt::format("\\x{:02x}", number)
                   : number < 0x10000 ? fmt::format("\\u{:04x}", number)
                                      : fmt::format("\\U{:08x}", number);
        }
    }
    return out + quote;
}

std::string repr_float(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    char buffer[40];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
    std::string_view text(buffer, end.ptr - buffer);
    std::string sign;
    if (text.front() == '-') {
        sign = "-";
        text.remove_prefix(1);
    }
    const size_t e = text.find('e');
    int exponent = 0;
    const char* digits_of_exponent = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
    std::from_chars(digits_of_exponent, text.data() + text.size(), exponent);
    std::string digits(text.substr(0, e));
    std::erase(digits, '.');
    if (exponent < -4 || exponent >= 16) {
        std::string out = sign + digits.substr(0, 1);
        if (digits.size() > 1) out += "." + digits.substr(1);
        return out + fmt::format("e{}{:02d}", exponent < 0 ? "-" : "+", std::abs(exponent));
    }
    if (exponent < 0) return sign + "0." + std::string(-exponent - 1, '0') + digits;
    const auto whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
    return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace aerie::jinja
