#include "mutator.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <utility>

#include "fuzz.h"

namespace aerie::fuzz {
namespace {

// What numbers, lengths and texts break on, whatever is read.
const std::vector<std::string> kTokens = {"0",
                                          "-1",
                                          "1",
                                          "255",
                                          "65536",
                                          "2147483647",
                                          "-2147483648",
                                          "2147483648",
                                          "4294967296",
                                          "9223372036854775807",
                                          "-9223372036854775808",
                                          "18446744073709551616",
                                          "1e308",
                                          "1e-320",
                                          "-0.0",
                                          "1e999",
                                          "null",
                                          "true",
                                          "NaN",
                                          "\"\"",
                                          "[]",
                                          "{}",
                                          "[",
                                          "]",
                                          "{",
                                          "}",
                                          "(",
                                          ")",
                                          "\"",
                                          ",",
                                          ":",
                                          "\\",
                                          "\\u0000",
                                          "\\ud800",
                                          "\n",
                                          "\r\n",
                                          std::string(1, '\0'),
                                          "\xff",
                                          "\xc3",
                                          "\xed\xa0\x80",
                                          "\xf0\x9f\xa6\x85",
                                          "%",
                                          "%s",
                                          "\xef\xbb\xbf"};

unsigned hex_value(char c) {
    return static_cast<unsigned>(
        std::isdigit(static_cast<unsigned char>(c)) ? c - '0' : (c | 0x20) - 'a' + 10);
}

}  // namespace

std::vector<std::string> read_dictionary(const std::string& path) {
    std::vector<std::string> tokens;
    if (path.empty()) return tokens;
    std::ifstream file(path);
    require(file.good(), "the dictionary can be read: " + path);
    for (std::string line; std::getline(file, line);) {
        const size_t begin = line.find('"'), end = line.rfind('"');
        if (line.starts_with('#') || begin == end) continue;
        std::string token;
        for (size_t i = begin + 1; i < end; ++i) {
            if (line[i] != '\\') {
                token += line[i];
            } else if (line[i + 1] == 'x' && i + 3 < end) {
                token += static_cast<char>(hex_value(line[i + 2]) * 16 + hex_value(line[i + 3]));
                i += 3;
            } else {
                token += line[++i];
            }
        }
        tokens.push_back(std::move(token));
    }
    return tokens;
}

Mutator::Mutator(std::vector<std::string> corpus, std::vector<std::string> dictionary,
                 size_t max_len, uint64_t seed)
    : corpus_(std::move(corpus)),
      dictionary_(std::move(dictionary)),
      max_len_(max_len),
      random_(seed) {
    if (corpus_.empty()) corpus_.emplace_back();
}

size_t Mutator::below(size_t bound) { return random_() % bound; }

std::string Mutator::next() {
    std::string text = any(corpus_);
    for (size_t left = 1 + below(below(4) == 0 ? 12 : 3); left > 0; --left) mutate(text);
    return text;
}

void Mutator::mutate(std::string& text) {
    switch (below(9)) {
        case 0:
        case 1:
            return change_byte(text);
        case 2:
            return remove(text);
        case 3:
            return repeat(text);
        case 4:
        case 5:
            return insert_token(text);
        case 6:
            return change_number(text);
        case 7:
            return splice(text);
        default:
            text.resize(below(text.size() + 1));
    }
}

void Mutator::change_byte(std::string& text) {
    if (text.empty()) return;
    char& byte = text[below(text.size())];
    byte = below(2) == 0 ? static_cast<char>(byte ^ 1 << below(8)) : static_cast<char>(random_());
}

void Mutator::remove(std::string& text) {
    if (text.empty()) return;
    const size_t begin = below(text.size());
    text.erase(begin, 1 + below(below(3) == 0 ? text.size() : 8));
}

// A part of it many times: depth, and lists beyond their limits.
void Mutator::repeat(std::string& text) {
    if (text.empty() || text.size() >= max_len_) return;
    const size_t begin = below(text.size());
    const std::string part = text.substr(begin, 1 + below(below(3) == 0 ? 64 : 6));
    const size_t most = (max_len_ - text.size()) / part.size();
    size_t times = std::min(most, 1 + below(below(4) == 0 ? 2000 : 8));
    std::string more;
    for (; times > 0; --times) more += part;
    text.insert(begin, more);
}

void Mutator::insert_token(std::string& text) {
    const bool own = !dictionary_.empty() && below(3) > 0;
    const std::string& token = own ? any(dictionary_) : any(kTokens);
    const size_t at = below(text.size() + 1);
    if (below(2) == 0) {
        text.replace(at, std::min(token.size(), text.size() - at), token);
    } else if (text.size() + token.size() <= std::max(max_len_, text.size())) {
        text.insert(at, token);
    }
}

void Mutator::change_number(std::string& text) {
    const size_t from = below(text.size() + 1);
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto begin =
        std::find_if(text.begin() + static_cast<ptrdiff_t>(from), text.end(), is_digit);
    if (begin == text.end()) return insert_token(text);
    const auto end = std::find_if_not(begin, text.end(), is_digit);
    constexpr size_t kNumNumbers = 16;  // the first of kTokens
    text.replace(begin, end, kTokens[below(kNumNumbers)]);
}

void Mutator::splice(std::string& text) {
    const std::string& other = any(corpus_);
    if (other.empty()) return;
    const size_t from = below(other.size());
    const std::string part = other.substr(from, 1 + below(other.size() - from));
    const size_t at = below(text.size() + 1);
    if (below(2) == 0) {
        text.resize(at);
        text += part;
    } else if (text.size() + part.size() <= std::max(max_len_, text.size())) {
        text.insert(at, part);
    }
}

}  // namespace aerie::fuzz
