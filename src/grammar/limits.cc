#include "grammar/limits.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace aerie::grammar {
namespace {

// A regular expression or EBNF, read only for its size: brackets, bars and bounds.
Status check_parts(int64_t sum) {
    if (sum <= kMaxParts) return {};
    return error("it comes to more than {} parts, with its repetitions", kMaxParts);
}

bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '-' || c == '.';
}

class PatternSize {
  public:
    PatternSize(std::string_view text, bool is_ebnf) : text_(text), is_ebnf_(is_ebnf) {}

    // How many parts it comes to.
    Result<int64_t> count() {
        while (at_ < text_.size()) RETURN_IF_ERROR(step());
        int64_t sum = 0;
        for (const Group& group : groups_) sum += group.sum;
        RETURN_IF_ERROR(check_parts(sum));
        return sum;
    }

  private:
    struct Group {
        int64_t sum = 0;   // atoms so far, each times its bounds
        int64_t last = 0;  // of these, the last one's
    };

    void add_atom(int64_t count = 1) {
        groups_.back().last = count;
        groups_.back().sum += count;
    }

    Status step() {
        const char c = text_[at_];
        switch (c) {
            case '\\':
                at_ += 2;
                add_atom();
                return {};
            case '"':
                if (is_ebnf_) return skip_to('"');
                break;
            case '#':
                if (is_ebnf_) at_ = std::min(text_.find('\n', at_), text_.size() - 1);
                break;
            case '[':
                return skip_to(']');
            case '(':
                ++at_;
                groups_.emplace_back();
                if (groups_.size() <= size_t{kMaxDepth}) return {};
                return error("its brackets are nested more than {} deep", kMaxDepth);
            case ')':
                return close();
            case '{':
                return repeat();
            case '*':
            case '+':
                ++at_;
                add_atom(kLoopParts);
                return check_parts(groups_.back().sum);
            case '|':
                ++at_;
                if (++num_bars_ < kMaxAlternatives) return {};
                return error("it has more than {} alternatives", kMaxAlternatives);
            default:
                break;
        }
        ++at_;
        if (is_ebnf_ && is_name(c)) {
            while (at_ < text_.size() && is_name(text_[at_])) ++at_;
        }
        if (!is_ebnf_ || c > ' ') add_atom();
        return {};
    }

    // Over a class or a string: one atom, each character of a string another.
    Status skip_to(char end) {
        const size_t begin = at_++;
        while (at_ < text_.size() && text_[at_] != end) at_ += text_[at_] == '\\' ? 2 : 1;
        ++at_;
        add_atom(end == ']' ? 1 : static_cast<int64_t>(std::max<size_t>(at_ - begin, 3) - 2));
        return check_parts(groups_.back().sum);
    }

    Status close() {
        ++at_;
        if (groups_.size() < 2) return {};  // XGrammar says what is wrong
        const int64_t sum = groups_.back().sum;
        groups_.pop_back();
        add_atom(sum);
        return check_parts(groups_.back().sum);
    }

    Status repeat() {
        ++at_;
        int64_t number = 0, most = 0;
        for (; at_ < text_.size() && text_[at_] != '}'; ++at_) {
            const bool digit = text_[at_] >= '0' && text_[at_] <= '9';
            number = digit ? number * 10 + (text_[at_] - '0') : 0;
            most = std::max(most, number);
            if (most > kMaxRepeat)
                return error("it repeats something more than {} times", kMaxRepeat);
        }
        ++at_;
        Group& group = groups_.back();
        group.sum += group.last * std::max<int64_t>(most - 1, 0);
        group.last *= std::max<int64_t>(most, 1);
        return check_parts(group.sum);
    }

    const std::string_view text_;
    const bool is_ebnf_;
    size_t at_ = 0;
    std::vector<Group> groups_{1};
    int num_bars_ = 0;
};

// How many parts it comes to.
Result<int64_t> check_pattern(std::string_view what, std::string_view text, bool is_ebnf) {
    const size_t most = is_ebnf ? kMaxBytes : kMaxPatternBytes;
    if (text.size() > most) {
        return error("{} has {} bytes, at most {} may be", what, text.size(), most);
    }
    if (text.find('\0') != text.npos) return error("{} holds a NUL", what);
    auto parts = PatternSize(text, is_ebnf).count();
    if (!parts) return error("{}: {}", what, parts.message());
    return parts;
}

class JsonSize {
  public:
    Status check(std::string_view key, const Json& value) {
        if (++num_nodes_ > kMaxNodes) return error("it has more than {} JSON values", kMaxNodes);
        if (value.is_string()) return check_string(key, value.as_string());
        if (value.is_number()) return check_number(key, value);
        if (value.is_array()) {
            const size_t size = value.as_array().size();
            if (size > size_t{kMaxAlternatives}) {
                return error("\"{}\" has {} items, at most {} may be", key, size, kMaxAlternatives);
            }
            for (const Json& item : value.as_array()) RETURN_IF_ERROR(check(key, item));
        } else if (value.is_object()) {
            const bool are_patterns = key == "patternProperties";
            if (value.find("$ref") && ++num_references_ > kMaxReferences) {
                return error("it has more than {} $ref", kMaxReferences);
            }
            if (are_patterns) num_patterns_ += static_cast<int>(value.as_object().size());
            if (num_patterns_ > kMaxPatternProperties) {
                return error("it has more than {} patternProperties", kMaxPatternProperties);
            }
            for (const auto& [name, member] : value.as_object()) {
                RETURN_IF_ERROR(check_string(are_patterns ? "pattern" : "", name));
                RETURN_IF_ERROR(check(name, member));
            }
        }
        return {};
    }

  private:
    Status check_string(std::string_view key, const std::string& text) {
        if (text.find('\0') != text.npos) return error("a string of it holds a NUL");
        const bool is_ebnf = key == "grammar";
        if (!is_ebnf && key != "pattern") return {};
        auto parts = check_pattern(is_ebnf ? "a grammar of it" : "a pattern of it", text, is_ebnf);
        return parts ? add_parts(*parts) : Status(parts.error());
    }

    Status add_parts(int64_t count) {
        num_parts_ += count;
        if (num_parts_ <= kMaxParts) return {};
        return error("its patterns and bounds come to more than {} parts", kMaxParts);
    }

    // Of min…, max…: numbers of things. Those of values are bounds of another kind.
    Status check_number(std::string_view key, const Json& value) {
        const bool counts = key.ends_with("Length") || key.ends_with("Items") ||
                            key.ends_with("Properties") || key.ends_with("Contains") ||
                            key == "min" || key == "max" || key.starts_with("max_");
        if (!counts) return {};
        const double bound = value.as_double();
        if (bound > static_cast<double>(kMaxRepeat)) {
            return error("\"{}\" is {}, at most {} may be", key, value.dump(), kMaxRepeat);
        }
        return add_parts(static_cast<int64_t>(
            std::clamp(bound, 0.0, static_cast<double>(kMostOfBound))));
    }

    int num_nodes_ = 0, num_references_ = 0, num_patterns_ = 0;
    int64_t num_parts_ = 0;
};

Status check_json(const std::string& text) {
    auto json = Json::parse(text, kMaxDepth);
    if (!json) return error("{}", json.message());
    return JsonSize().check("", *json);
}

}  // namespace

Status check_limits(const Grammar& grammar) {
    const std::string& text = grammar.text;
    if (text.size() > kMaxBytes) {
        return error("it has {} bytes, at most {} may be", text.size(), kMaxBytes);
    }
    switch (grammar.kind) {
        case Grammar::Kind::kRegex:
        case Grammar::Kind::kEbnf: {
            auto parts = check_pattern("it", text, grammar.kind == Grammar::Kind::kEbnf);
            return parts ? Status() : Status(parts.error());
        }
        default:
            return check_json(text);
    }
}

}  // namespace aerie::grammar
