#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <pcre2.h>

#include "base/log.h"

namespace aerie {
namespace {

constexpr uint32_t kMatchLimit = 50'000'000;   // steps of one match, interpreted
constexpr size_t kJitStackMax = 1 << 20;       // bytes

// Oniguruma's \w. PCRE2's has no marks and no connectors but "_".
constexpr const char* kWordInClass = "\\p{L}\\p{M}\\p{N}\\p{Pc}";

std::string message_of(int code) {
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(code, text, sizeof text);
    return reinterpret_cast<const char*>(text);
}

// Appends the translation of the escape \c; an error text where there is none.
const char* translate_escape(char c, bool in_class, std::string& out) {
    switch (c) {
        // White_Space is what Oniguruma calls a space; PCRE2's \s has U+180E as well.
        case 's': out += "\\p{White_Space}"; return nullptr;
        case 'S': out += "\\P{White_Space}"; return nullptr;
        case 'w': out += in_class ? kWordInClass : std::string("[") + kWordInClass + "]"; return nullptr;
        case 'W':
            if (in_class) return "\\W inside a class";
            out += std::string("[^") + kWordInClass + "]";
            return nullptr;
        case 'd': case 'D': case 'p': case 'P': case 'n': case 'r': case 't': case 'f': case 'x':
        case 'A': case 'z':
            break;
        case 'u': return "\\u";
        default:
            if (static_cast<unsigned char>(c) < 0x80 &&
                ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))) {
                return "this escape";
            }
    }
    out += '\\';
    out += c;
    return nullptr;
}

// "(?" may begin a non-capturing group, a lookaround, or an i flag; the others differ in meaning.
bool is_known_group(std::string_view rest) {
    for (std::string_view known : {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:", "?i)"}) {
        if (rest.starts_with(known)) return true;
    }
    return !rest.starts_with("?");
}

}  // namespace

Result<std::string> translate_regex(std::string_view pattern) {
    std::string out;
    bool in_class = false;
    size_t class_begin = 0;
    const auto refuse = [&](size_t at, const char* what) {
        return error("regex \"{}\": {} at byte {} is not supported", pattern, what, at);
    };
    for (size_t i = 0; i < pattern.size(); ++i) {
        const char c = pattern[i];
        if (c == '\\') {
            if (i + 1 == pattern.size()) return refuse(i, "a \\ at the end");
            if (const char* what = translate_escape(pattern[++i], in_class, out)) {
                return refuse(i - 1, what);
            }
            continue;
        }
        if (in_class) {
            const bool first = i == class_begin || (i == class_begin + 1 && pattern[i - 1] == '^');
            if (c == '[') return refuse(i, "a class inside a class");
            if (pattern.substr(i).starts_with("&&")) return refuse(i, "&& inside a class");
            if (c == ']' && first) return refuse(i, "an empty class");
            if (c == ']') in_class = false;
        } else if (c == '[') {
            in_class = true;
            class_begin = i + 1;
        } else if (c == '(' && !is_known_group(pattern.substr(i + 1))) {
            return refuse(i, "this group");
        }
        out += c;
    }
    return out;
}

struct RegexScratch::Impl {
    pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
    pcre2_match_context* context = pcre2_match_context_create(nullptr);
    pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackMax, nullptr);

    Impl() {
        CHECK(match && context && stack, "out of memory");
        pcre2_jit_stack_assign(context, nullptr, stack);
        pcre2_set_match_limit(context, kMatchLimit);
    }
    ~Impl() {
        pcre2_jit_stack_free(stack);
        pcre2_match_context_free(context);
        pcre2_match_data_free(match);
    }
};

RegexScratch::RegexScratch() : impl_(std::make_unique<Impl>()) {}
RegexScratch::~RegexScratch() = default;
RegexScratch::RegexScratch(RegexScratch&&) noexcept = default;

struct Regex::Code {
    pcre2_code* code = nullptr;
    bool jit = false;
    ~Code() { pcre2_code_free(code); }
};

Result<Regex> Regex::compile(const std::string& pattern, bool literal) {
    std::string translated = pattern;
    // Ruby's ^ and $ stand at every line.
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE;
    if (literal) {
        options = PCRE2_UTF | PCRE2_LITERAL;
    } else {
        auto result = translate_regex(pattern);
        if (!result) return result.error();
        translated = *std::move(result);
    }
    int code = 0;
    PCRE2_SIZE at = 0;
    auto compiled = std::make_shared<Code>();
    compiled->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                   translated.size(), options, &code, &at, nullptr);
    if (!compiled->code) {
        return error("regex \"{}\": {} at byte {}", translated, message_of(code), at);
    }
    compiled->jit = pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE) == 0;
    return Regex(std::move(compiled));
}

std::optional<Regex::Match> Regex::find(std::string_view text, size_t from,
                                        RegexScratch& scratch) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    RegexScratch::Impl& s = *scratch.impl_;
    int code = PCRE2_ERROR_JIT_STACKLIMIT;
    if (code_->jit) {
        code = pcre2_jit_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, s.match,
                               s.context);
    }
    if (code == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its stack on the heap
        code = pcre2_match(code_->code, subject, text.size(), from,
                           PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s.match, s.context);
    }
    if (code == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (code < 0) {
        log_warning("a pre-tokeniser's regex gave up at byte {} of {}: {}", from, text.size(),
                    message_of(code));
        return std::nullopt;
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(s.match);
    return Match{range[0], range[1]};
}

}  // namespace aerie
