#include "template/lexer.h"

#include <algorithm>
#include <cstdint>

#include "template/failure.h"
#include "template/python_text.h"

namespace aerie::jinja {
namespace {

using Type = Token::Type;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           static_cast<uint8_t>(c) >= 0x80;
}
bool is_name(char c) { return is_name_start(c) || is_digit(c); }

// Lines end with "\n" only, and the last one without.
std::string normalize_newlines(std::string_view source) {
    std::string text;
    text.reserve(source.size());
    for (size_t i = 0; i < source.size(); ++i) {
        if (source[i] == '\r') {
            text += '\n';
            if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
        } else {
            text += source[i];
        }
    }
    if (text.ends_with('\n')) text.pop_back();
    return text;
}

// Follows jinja2.lexer.Lexer.tokeniter.
class Lexer {
  public:
    explicit Lexer(std::string_view source) : text_(normalize_newlines(source)), rest_(text_) {}

    std::vector<Token> run() {
        while (at_ < rest_.size()) root();
        add(Type::kEnd, "");
        return std::move(tokens_);
    }

  private:
    void add(Type type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }
    char peek(size_t ahead = 0) const {
        return at_ + ahead < rest_.size() ? rest_[at_ + ahead] : '\0';
    }
    bool looking_at(std::string_view text) const { return rest_.substr(at_).starts_with(text); }

    // Moves on and counts lines.
    void take(size_t num_bytes) {
        const std::string_view taken = rest_.substr(at_, num_bytes);
        line_ += static_cast<int>(std::count(taken.begin(), taken.end(), '\n'));
        at_ += taken.size();
        if (!taken.empty()) line_starting_ = taken.back() == '\n';
    }
    void take_spaces() { take(rest_.size() - at_ - lstrip(rest_.substr(at_)).size()); }

    // Text up to a tag. sign: the '-' or '+' after the tag's two characters, or 0.
    void add_data(std::string_view text, char sign, bool variable) {
        const bool line_starting = line_starting_;
        const int line = line_;
        take(text.size());
        if (sign == '-') {
            text = rstrip(text);
        } else if (sign != '+' && !variable) {  // lstrip_blocks
            const size_t newline = text.rfind('\n');
            const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
            if ((begin > 0 || line_starting) && lstrip(text.substr(begin)).empty()) {
                text = text.substr(0, begin);
            }
        }
        if (!text.empty()) tokens_.push_back({Type::kData, std::string(text), line});
    }

    void root() {
        size_t tag = at_;
        while (true) {
            tag = rest_.find('{', tag);
            if (tag == std::string_view::npos || tag + 1 >= rest_.size()) {
                add_data(rest_.substr(at_), '+', false);
                return;
            }
            const char kind = rest_[tag + 1];
            if (kind == '{' || kind == '%' || kind == '#') break;
            ++tag;
        }
        const char kind = rest_[tag + 1];
        const char next = tag + 2 < rest_.size() ? rest_[tag + 2] : '\0';
        const char sign = next == '-' || next == '+' ? next : '\0';
        add_data(rest_.substr(at_, tag - at_), sign, kind == '{');
        if (kind == '%' && raw_block()) return;
        take(sign ? 3 : 2);
        if (kind == '#') {
            comment();
        } else {
            add(kind == '{' ? Type::kVariableBegin : Type::kBlockBegin, "");
            tag_body(kind == '{');
        }
    }

    void comment() {
        const size_t end = rest_.find("#}", at_);
        if (end == std::string_view::npos) fail_at(line_, "a comment without its end \"#}}\"");
        const char sign = end > at_ ? rest_[end - 1] : '\0';
        take(end - at_);
        take(2);
        after_block(sign);
    }

    // White space after the end of a block or comment: trim_blocks, or all of it after '-'.
    void after_block(char sign) {
        if (sign == '-') {
            take_spaces();
        } else if (sign != '+' && peek() == '\n') {
            take(1);
        }
    }

    // "{% raw %}" up to its end, where the block that begins here is one.
    bool raw_block() {
        size_t i = at_ + 2;
        if (i < rest_.size() && (rest_[i] == '-' || rest_[i] == '+')) ++i;
        const auto skip_spaces = [&] { i = rest_.size() - lstrip(rest_.substr(i)).size(); };
        skip_spaces();
        if (!rest_.substr(i).starts_with("raw")) return false;
        i += 3;
        skip_spaces();
        if (rest_.substr(i).starts_with("-%}")) {
            i += 3;
            skip_spaces();
        } else if (rest_.substr(i).starts_with("%}")) {
            i += 2;
        } else {
            return false;
        }
        const int line = line_;
        take(i - at_);
        for (size_t end = rest_.find("{%", at_); end != std::string_view::npos;
             end = rest_.find("{%", end + 1)) {
            i = end + 2;
            char sign = i < rest_.size() ? rest_[i] : '\0';
            if (sign == '-' || sign == '+') ++i;
            skip_spaces();
            if (!rest_.substr(i).starts_with("endraw")) continue;
            i += 6;
            skip_spaces();
            const char end_sign = i < rest_.size() ? rest_[i] : '\0';
            if (end_sign == '-' || end_sign == '+') ++i;
            if (!rest_.substr(i).starts_with("%}")) continue;
            add_data(rest_.substr(at_, end - at_), sign == '-' || sign == '+' ? sign : '\0', false);
            take(i + 2 - at_);
            after_block(end_sign);
            return true;
        }
        fail_at(line, "a raw block without its end \"{{% endraw %}}\"");
    }

    void tag_body(bool variable) {
        const std::string_view end = variable ? "}}" : "%}";
        std::string open;  // brackets that wait for their end
        while (true) {
            take_spaces();
            if (at_ >= rest_.size()) {
                fail_at(line_, "the template ends inside a tag, expected \"{}\"", end);
            }
            const char c = peek();
            const bool minus = c == '-', plus = c == '+' && !variable;
            if (open.empty() && (looking_at(end) || ((minus || plus) &&
                                                     rest_.substr(at_ + 1).starts_with(end)))) {
                take(minus || plus ? 3 : 2);
                add(variable ? Type::kVariableEnd : Type::kBlockEnd, "");
                if (!variable) {
                    after_block(minus ? '-' : plus ? '+' : '\0');
                } else if (minus) {
                    take_spaces();
                }
                return;
            }
            if (is_digit(c)) {
                number();
            } else if (is_name_start(c)) {
                size_t length = 1;
                while (is_name(peek(length))) ++length;
                add(Type::kName, std::string(rest_.substr(at_, length)));
                take(length);
            } else if (c == '"' || c == '\'') {
                string(c);
            } else {
                operator_token(open);
            }
        }
    }

    void operator_token(std::string& open) {
        for (std::string_view op : {"//", "**", "==", "!=", ">=", "<="}) {
            if (!looking_at(op)) continue;
            add(Type::kOperator, std::string(op));
            return take(2);
        }
        const char c = peek();
        if (std::string_view("+-/*%~[](){}<>=.:|,;").find(c) == std::string_view::npos) {
            fail_at(line_, "unexpected character '{}'", c);
        }
        if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
        if (c == ')' || c == ']' || c == '}') {
            if (open.empty()) fail_at(line_, "unexpected '{}'", c);
            if (open.back() != c) fail_at(line_, "unexpected '{}', expected '{}'", c, open.back());
            open.pop_back();
        }
        add(Type::kOperator, std::string(1, c));
        take(1);
    }

    size_t digits(size_t ahead) const {  // (\d+_)*\d+
        size_t n = ahead;
        while (is_digit(peek(n)) || (peek(n) == '_' && n > ahead && is_digit(peek(n + 1)))) ++n;
        return n;
    }

    void number() {
        const char radix = peek() == '0' ? static_cast<char>(peek(1) | 0x20) : '\0';
        if (radix == 'x' || radix == 'o' || radix == 'b') {
            fail_at(line_, "numbers that begin with 0{} are not supported", radix);
        }
        size_t end = digits(0);
        bool is_float = false;
        // "1.x" is an attribute and "a.1.2" two subscripts, so a point needs digits after it.
        const bool after_point = at_ > 0 && rest_[at_ - 1] == '.';
        if (!after_point) {
            if (peek(end) == '.' && is_digit(peek(end + 1))) {
                end = digits(end + 1);
                is_float = true;
            }
            if ((peek(end) | 0x20) == 'e') {
                const size_t sign = peek(end + 1) == '+' || peek(end + 1) == '-' ? 1 : 0;
                if (is_digit(peek(end + 1 + sign))) {
                    end = digits(end + 1 + sign);
                    is_float = true;
                }
            }
        }
        std::string text(rest_.substr(at_, end));
        std::erase(text, '_');
        add(is_float ? Type::kFloat : Type::kInteger, std::move(text));
        take(end);
    }

    void string(char quote) {
        std::string value;
        size_t i = at_ + 1;
        while (i < rest_.size() && rest_[i] != quote) {
            if (rest_[i] == '\\' && i + 1 < rest_.size()) {
                i = escape(i + 1, value);
            } else {
                value += rest_[i++];
            }
        }
        if (i >= rest_.size()) fail_at(line_, "a string without its end {}", quote);
        add(Type::kString, std::move(value));
        take(i + 1 - at_);
    }

    // The escape whose letter stands at i, as in a Python string. Returns where it ends.
    size_t escape(size_t i, std::string& value) {
        const char c = rest_[i++];
        static constexpr std::string_view kLetters = "abfnrtv\\'\"";
        static constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
        if (const size_t known = kLetters.find(c); known != std::string_view::npos) {
            value += kValues[known];
        } else if (c == '\n') {
            // a line that goes on
        } else if (c >= '0' && c <= '7') {
            char32_t code = c - '0';
            for (int n = 1; n < 3 && i < rest_.size() && rest_[i] >= '0' && rest_[i] <= '7'; ++n) {
                code = code * 8 + (rest_[i++] - '0');
            }
            append_utf8(value, code);
        } else if (c == 'x' || c == 'u' || c == 'U') {
            const int num_digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
            char32_t code = 0;
            for (int n = 0; n < num_digits; ++n) {
                const char digit = i < rest_.size() ? rest_[i++] : '\0';
                const char lower = static_cast<char>(digit | 0x20);
                if (is_digit(digit)) code = code * 16 + (digit - '0');
                else if (lower >= 'a' && lower <= 'f') code = code * 16 + (lower - 'a' + 10);
                else fail_at(line_, "\\{} needs {} hexadecimal digits", c, num_digits);
            }
            if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
                fail_at(line_, "\\{} names U+{:04X}, which is no character", c,
                        static_cast<uint32_t>(code));
            }
            append_utf8(value, code);
        } else if (c == 'N') {
            fail_at(line_, "\\N in a string is not supported");
        } else {
            value += '\\';
            value += c;
        }
        return i;
    }

    std::string text_;
    std::string_view rest_;  // text_
    size_t at_ = 0;
    int line_ = 1;
    bool line_starting_ = true;
    std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace aerie::jinja
