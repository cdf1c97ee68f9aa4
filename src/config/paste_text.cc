#include "config/paste_text.h"

#include <algorithm>
#include <cctype>

namespace aerie {
namespace {

struct Replacement {
    const char *from, *to, *why;
};

constexpr const char* kTypographicQuotes =
    "typographic or full-width quotes; expected plain double quotes";
constexpr const char* kFullWidth = "full-width characters; expected plain ASCII ones";
constexpr const char* kEntities = "HTML entities; expected plain characters";
constexpr const char* kSpaces = "no-break or zero-width spaces; expected plain spaces";

constexpr Replacement kReplacements[] = {
    {"“", "\"", kTypographicQuotes},  {"”", "\"", kTypographicQuotes},
    {"„", "\"", kTypographicQuotes},  {"‟", "\"", kTypographicQuotes},
    {"«", "\"", kTypographicQuotes},  {"»", "\"", kTypographicQuotes},
    {"＂", "\"", kTypographicQuotes}, {"「", "\"", kTypographicQuotes},
    {"」", "\"", kTypographicQuotes}, {"‘", "\"", kTypographicQuotes},
    {"’", "\"", kTypographicQuotes},  {"＇", "\"", kTypographicQuotes},
    {"＝", "=", kFullWidth},          {"：", ":", kFullWidth},
    {"，", ",", kFullWidth},          {"、", ",", kFullWidth},
    {"［", "[", kFullWidth},          {"］", "]", kFullWidth},
    {"【", "[", kFullWidth},          {"】", "]", kFullWidth},
    {"｛", "{", kFullWidth},          {"｝", "}", kFullWidth},
    {"＿", "_", kFullWidth},          {"－", "-", kFullWidth},
    {"＃", "#", kFullWidth},          {"–", "-", kFullWidth},
    {"—", "-", kFullWidth},           {"−", "-", kFullWidth},
    {"&quot;", "\"", kEntities},      {"&#34;", "\"", kEntities},
    {"&#39;", "\"", kEntities},       {"&amp;", "&", kEntities},
    {"&nbsp;", " ", kEntities},       {"\u00a0", " ", kSpaces},
    {"\u3000", " ", kSpaces},         {"\u2003", " ", kSpaces},
    {"\u2009", " ", kSpaces},         {"\u200b", "", kSpaces},
    {"\ufeff", "", kSpaces},
};

}  // namespace

void Reasons::add(std::string_view reason) {
    if (std::find(reasons_.begin(), reasons_.end(), reason) == reasons_.end()) {
        reasons_.emplace_back(reason);
    }
}

std::string Reasons::text() const {
    std::string out;
    for (const std::string& reason : reasons_) out += (out.empty() ? "" : "; ") + reason;
    return out;
}

std::string_view trimmed(std::string_view text) {
    const char* kBlank = " \t\r\n";
    const size_t begin = text.find_first_not_of(kBlank);
    if (begin == text.npos) return {};
    return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

bool is_word_start(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '/' || c == '~' ||
           c == '.' || c == '-' || c == '+';
}

bool is_word(char c) { return is_word_start(c) || c == ':' || c == '@'; }

bool is_number(std::string_view text) {
    bool digits = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        digits |= std::isdigit(static_cast<unsigned char>(c)) != 0;
        const bool sign =
            (c == '-' || c == '+') && (i == 0 || text[i - 1] == 'e' || text[i - 1] == 'E');
        const bool inside = i > 0 && (c == '.' || c == 'e' || c == 'E' || c == '_');
        if (!std::isdigit(static_cast<unsigned char>(c)) && !sign && !inside) return false;
    }
    return digits;
}

std::string plain_characters(std::string_view text, Reasons& reasons) {
    std::string out(text);
    for (const auto& [from, to, why] : kReplacements) {
        for (size_t at = out.find(from); at != out.npos; at = out.find(from, at)) {
            out.replace(at, std::string_view(from).size(), to);
            reasons.add(why);
        }
    }
    return out;
}

std::string quoted_word(std::string_view word, Reasons& reasons) {
    if (word == "true" || word == "false" || is_number(word)) return std::string(word);
    std::string lower(word);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (lower == "true" || lower == "false") {
        reasons.add("true and false are written in lower case");
        return lower;
    }
    reasons.add("words need double quotes");
    return '"' + std::string(word) + '"';
}

}  // namespace aerie
