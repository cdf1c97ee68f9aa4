#include <algorithm>

#include "config/paste_repair.h"
#include "config/paste_text.h"

namespace aerie {
namespace {

bool is_key(char c) { return is_word_start(c) && c != '/' && c != '~' && c != '+'; }

// Where a comment begins, outside double quotes.
size_t comment_start(std::string_view text) {
    bool quoted = false;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '"') quoted = !quoted;
        if (text[i] == '#' && !quoted) return i;
    }
    return text.size();
}

// A value or a list of them, with quotes around words.
std::string repaired_value(std::string_view text, Reasons& reasons) {
    std::string out;
    for (size_t i = 0; i < text.size();) {
        const char c = text[i];
        if (c == '"' || c == '\'') {
            const size_t end = text.find(c, i + 1);
            if (end == text.npos) {
                reasons.add("a closing quote is missing");
                // A list goes on after its word.
                const size_t stop = std::min(text.find_first_of(",]", i), text.size());
                out += std::string(trimmed(text.substr(i, stop - i))) + c;
                i = stop;
            } else {
                out += text.substr(i, end - i + 1);
                i = end + 1;
            }
        } else if (is_word_start(c)) {
            size_t end = i;
            while (end < text.size() && is_word(text[end])) ++end;
            out += quoted_word(text.substr(i, end - i), reasons);
            i = end;
        } else {
            out += c;
            ++i;
        }
    }
    return out;
}

std::string repaired_header(std::string_view text, Reasons& reasons) {
    std::string out(text);
    if (text.find(']') == text.npos && text.find('=') == text.npos) {
        reasons.add("the ] of the table's name is missing");
        out += ']';
    }
    return out;
}

// `key value`, `key: value`, `"key": value,` → `key = value`
std::string repaired_pair(std::string_view text, Reasons& reasons) {
    const bool quoted = text[0] == '"';
    size_t end = quoted ? text.find('"', 1) : 0;
    if (end == text.npos) return std::string(text);
    if (!quoted) {
        while (end < text.size() && is_key(text[end])) ++end;
    }
    const std::string key(text.substr(quoted, end - quoted));
    std::string_view rest = trimmed(text.substr(std::min(text.size(), end + quoted)));
    if (key.empty()) return std::string(text);
    if (rest.empty() || rest == ",") {  // a lonely word: an item of a list over several lines
        reasons.add("words need double quotes");
        return '"' + key + '"' + std::string(rest);
    }
    if (rest[0] == ':') {
        reasons.add("TOML has = between key and value");
        rest.remove_prefix(1 + (rest.size() > 1 && rest[1] == '='));
    } else if (rest[0] == '=') {
        rest.remove_prefix(1);
    } else {
        reasons.add("the = is missing");
    }
    rest = trimmed(rest);
    if (rest.ends_with(',') && !rest.starts_with('{')) {
        reasons.add("TOML has no comma at the end of a line");
        rest.remove_suffix(1);
    }
    return key + " = " + repaired_value(rest, reasons);
}

std::string repaired_line(std::string_view line, Reasons& reasons) {
    const std::string plain = plain_characters(line, reasons);
    std::string_view text = trimmed(plain);
    const size_t indent = plain.find_first_not_of(" \t");
    if (text.empty()) return plain;
    const std::string space = plain.substr(0, indent);
    if (text.starts_with("```") || text.starts_with("~~~")) {
        reasons.add("the fence of a code block is no part of the file");
        return "";
    }
    if (text == "{" || text == "}" || text == "},") {
        reasons.add("this is JSON; config.toml is written in TOML: [table], then key = value");
        return "";
    }
    if (text.starts_with("//")) {
        reasons.add("comments begin with #");
        return space + "# " + std::string(text.substr(2));
    }
    const size_t comment = comment_start(text);
    const std::string tail = comment < text.size() ? "  " + std::string(text.substr(comment)) : "";
    text = trimmed(text.substr(0, comment));
    if (text.empty()) return plain;
    if (text[0] == '[') {
        // A table's name, or an item of a list over several lines.
        return space + repaired_header(text, reasons) + tail;
    }
    return space + repaired_pair(text, reasons) + tail;
}

// A line before `line` that opens a list and does not close it, though `line` is a new key.
std::optional<Repair> unclosed_list(const std::vector<std::string>& lines, int line) {
    for (int before = line - 1; before >= 1; --before) {
        const std::string_view text = trimmed(lines[before - 1]);
        if (text.empty() || text[0] == '#') continue;
        const size_t open = text.find('[');
        if (open == text.npos || text.find(']') != text.npos || text.find('=') == text.npos) break;
        return Repair{before, std::string(text) + "]", "the ] of the list is missing"};
    }
    return std::nullopt;
}

}  // namespace

std::optional<Repair> repair_toml(const std::vector<std::string>& lines, int line) {
    if (line < 1 || line > static_cast<int>(lines.size())) return std::nullopt;
    const std::string& text = lines[line - 1];
    Reasons reasons;
    const std::string fixed = repaired_line(text, reasons);
    if (!reasons.text().empty() && fixed != text) return Repair{line, fixed, reasons.text()};
    return unclosed_list(lines, line);
}

}  // namespace aerie
