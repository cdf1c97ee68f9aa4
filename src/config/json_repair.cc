#include <algorithm>

#include "config/paste_repair.h"
#include "config/paste_text.h"

namespace aerie {
namespace {

// Walks one line of JSON-like text and writes it as JSON.
class LineRepair {
  public:
    LineRepair(std::string_view text, Reasons& reasons) : text_(text), reasons_(reasons) {}

    std::string run() {
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if (c == '#' || text_.substr(at_).starts_with("//")) {
                reasons_.add("JSON has no comments");
                break;
            }
            if (c == '"' || c == '\'') {
                string(c);
            } else if (is_word_start(c)) {
                word();
            } else {
                sign(c);
            }
        }
        return out_;
    }

  private:
    // What the last thing before this one was.
    enum class Last { kNothing, kKey, kColon, kValue, kOther };

    char next() const {
        const size_t i = text_.find_first_not_of(" \t", at_);
        return i == text_.npos ? '\0' : text_[i];
    }

    // A value follows directly on a key or on another value: a sign is missing between them.
    void before_token() {
        if (last_ == Last::kKey) {
            reasons_.add("the : between key and value is missing");
            append_before_space(':');
        } else if (last_ == Last::kValue) {
            reasons_.add("a comma is missing");
            append_before_space(',');
            last_ = Last::kOther;
        }
    }
    void append_before_space(char c) {
        const size_t end = out_.find_last_not_of(" \t");
        out_.insert(end == out_.npos ? 0 : end + 1, 1, c);
    }
    void after_token(bool could_be_key) {
        const bool key =
            could_be_key && depth_of_lists_ == 0 && last_ != Last::kKey && last_ != Last::kColon;
        last_ = key ? Last::kKey : Last::kValue;
    }

    void string(char quote) {
        before_token();
        size_t end = at_ + 1;
        while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
        if (quote == '\'') reasons_.add("JSON has double quotes");
        if (end >= text_.size()) {
            reasons_.add("a closing quote is missing");
            const size_t stop = std::min(text_.find_first_of(",}]", at_), text_.size());
            out_ += '"' + std::string(trimmed(text_.substr(at_ + 1, stop - at_ - 1))) + '"';
            at_ = stop;
        } else {
            out_ += '"' + std::string(text_.substr(at_ + 1, end - at_ - 1)) + '"';
            at_ = end + 1;
        }
        after_token(true);
    }

    void word() {
        before_token();
        size_t end = at_;
        while (end < text_.size() && is_word_start(text_[end])) ++end;
        const std::string_view word = text_.substr(at_, end - at_);
        at_ = end;
        const bool key = next() == ':' || next() == '=' ||
                         (last_ != Last::kColon && last_ != Last::kKey && depth_of_lists_ == 0 &&
                          !is_number(word));
        if (key) {
            reasons_.add("keys need double quotes");
            out_ += '"' + std::string(word) + '"';
        } else if (word == "None" || word == "null" || word == "nil") {
            if (word != "null") reasons_.add("JSON has null");
            out_ += "null";
        } else {
            out_ += quoted_word(word, reasons_);
        }
        after_token(key);
    }

    void sign(char c) {
        ++at_;
        if (c == '[') ++depth_of_lists_;
        if (c == ']') --depth_of_lists_;
        if (c == '=') {
            reasons_.add("JSON has : between key and value");
            c = ':';
        }
        if (c == ';') {
            reasons_.add("JSON has commas between the settings");
            c = ',';
        }
        if (c == ',' && (next() == '}' || next() == ']')) {
            reasons_.add("there is a comma after the last one");
            return;
        }
        out_ += c;
        if (c == ':') last_ = Last::kColon;
        if (c == ']' || c == '}') last_ = Last::kValue;
        if (c == ',' || c == '{' || c == '[') last_ = Last::kOther;
    }

    std::string_view text_;
    Reasons& reasons_;
    size_t at_ = 0;
    std::string out_;
    Last last_ = Last::kNothing;
    int depth_of_lists_ = 0;
};

int line_before(const std::vector<std::string>& lines, int line) {
    for (int before = line - 1; before >= 1; --before) {
        if (!trimmed(lines[before - 1]).empty()) return before;
    }
    return 0;
}

// The parser stops one line after a comma too many or too few.
std::optional<Repair> repair_comma_before(const std::vector<std::string>& lines, int line) {
    const int before = line_before(lines, line);
    const std::string_view text = trimmed(lines[line - 1]);
    if (before == 0 || text.empty()) return std::nullopt;
    const std::string_view previous = trimmed(lines[before - 1]);
    if (previous.back() == ',' && (text[0] == '}' || text[0] == ']')) {
        return Repair{before, std::string(previous.substr(0, previous.size() - 1)),
                      "there is a comma after the last one"};
    }
    if (text[0] == '"' &&
        std::string_view(",{[:").find(previous.back()) == std::string_view::npos) {
        return Repair{before, std::string(previous) + ',', "a comma is missing"};
    }
    return std::nullopt;
}

}  // namespace

std::optional<Repair> repair_json(const std::vector<std::string>& lines, int line) {
    if (line < 1 || line > static_cast<int>(lines.size())) return std::nullopt;
    const std::string& text = lines[line - 1];
    Reasons reasons;
    const std::string plain = plain_characters(text, reasons);
    const std::string_view inner = trimmed(plain);
    if (inner.starts_with("```")) {
        return Repair{line, "", "the fence of a code block is no part of the file"};
    }
    const std::string fixed = LineRepair(plain, reasons).run();
    if (!reasons.text().empty() && fixed != text) return Repair{line, fixed, reasons.text()};
    return repair_comma_before(lines, line);
}

}  // namespace aerie
