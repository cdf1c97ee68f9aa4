#include "parse/stop_regexes.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <utility>

namespace aerie::parse {
namespace {

constexpr size_t kMaxPattern = 1024;  // bytes
// One pattern and token may cost this much of the thread that all streams share.
constexpr uint32_t kMatchLimit = 5'000;
constexpr uint32_t kHeapLimit = 256;  // KiB

struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

std::string message_of(int code) {
    PCRE2_UCHAR text[128];
    pcre2_get_error_message(code, text, sizeof text);
    return reinterpret_cast<const char*>(text);
}

}  // namespace

struct StopRegexes::Pattern {
    std::string source;
    std::unique_ptr<pcre2_code, Free> code;
    std::unique_ptr<pcre2_match_data, Free> data;
    std::unique_ptr<pcre2_match_context, Free> context;

    enum class Result { kNone, kPartial, kMatch };
    // begin and end are valid for kMatch, begin for kPartial.
    Result find(std::string_view text, size_t from, bool is_last, size_t& begin,
                size_t& end) const {
        const uint32_t options =
            PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | (is_last ? 0 : PCRE2_PARTIAL_HARD);
        const int result = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                       text.size(), from, options, data.get(), context.get());
        const size_t* offsets = pcre2_get_ovector_pointer(data.get());
        if (result < 0 && result != PCRE2_ERROR_PARTIAL) return Result::kNone;
        begin = std::max(offsets[0], from);  // \K and looking behind may put it before
        end = std::max(offsets[1], begin);
        return result < 0 ? Result::kPartial : Result::kMatch;
    }
};

StopRegexes::StopRegexes() = default;
StopRegexes::~StopRegexes() = default;
StopRegexes::StopRegexes(StopRegexes&&) noexcept = default;

Result<StopRegexes> StopRegexes::compile(const std::vector<std::string>& patterns,
                                         bool keep_match) {
    StopRegexes result;
    result.keep_match_ = keep_match;
    for (const std::string& source : patterns) {
        if (source.empty() || source.size() > kMaxPattern) {
            return error("a pattern must have 1 to {} bytes, got {}", kMaxPattern, source.size());
        }
        int code = 0;
        size_t place = 0;
        Pattern pattern{.source = source, .code = nullptr, .data = nullptr, .context = nullptr};
        pattern.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                                         PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code,
                                         &place, nullptr));
        if (!pattern.code) {
            return error("{} is no regular expression: {} at byte {}", source, message_of(code),
                         place);
        }
        pattern.data.reset(pcre2_match_data_create(1, nullptr));
        pattern.context.reset(pcre2_match_context_create(nullptr));
        pcre2_set_match_limit(pattern.context.get(), kMatchLimit);
        pcre2_set_heap_limit(pattern.context.get(), kHeapLimit);
        result.patterns_.push_back(std::move(pattern));
    }
    return result;
}

StopRegexes::Found StopRegexes::look(bool is_last) {
    const Pattern* first = nullptr;
    size_t first_begin = text_.size(), first_end = text_.size();
    bool is_match = false;
    for (const Pattern& pattern : patterns_) {
        size_t begin = 0, end = 0;
        const auto found = pattern.find(text_, num_told_, is_last, begin, end);
        if (found == Pattern::Result::kNone || begin >= first_begin) continue;
        first = &pattern;
        first_begin = begin;
        first_end = end;
        is_match = found == Pattern::Result::kMatch;
    }
    const size_t told_to = is_match && keep_match_ ? first_end : first_begin;
    Found result{text_.substr(num_told_, told_to - num_told_), std::nullopt};
    num_told_ = told_to;
    if (is_match) result.matched = first->source;
    return result;
}

StopRegexes::Found StopRegexes::push(std::string_view text) {
    if (patterns_.empty()) return {std::string(text), std::nullopt};
    text_ += text;
    return look(/*is_last=*/false);
}

StopRegexes::Found StopRegexes::pass(std::string_view text) {
    if (patterns_.empty()) return {std::string(text), std::nullopt};
    text_ += text;
    Found result{text_.substr(num_told_), std::nullopt};
    num_told_ = text_.size();
    return result;
}

StopRegexes::Found StopRegexes::finish() {
    if (patterns_.empty()) return {};
    return look(/*is_last=*/true);
}

}  // namespace aerie::parse
