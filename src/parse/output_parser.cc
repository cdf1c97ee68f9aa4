#include "parse/output_parser.h"

#include <algorithm>
#include <utility>

namespace aerie::parse {

enum class OutputParser::Marker : unsigned char {
    kThink,
    kThinkEnd,
    kCalls,
    kCallsEnd,
    kCall,
    kSeparator,
    kCallEnd,
    kOther,  // what stands in prompts only
};

struct OutputParser::MarkerText {
    std::string_view text;
    Marker marker;
    bool is_think;  // of the reasoning, else of the calls
};

namespace {

constexpr size_t kMaxHeader = 512;  // bytes of a call before its arguments
constexpr std::string_view kBlanks = " \t\r\n";

std::string_view without_leading_blanks(std::string_view text) {
    return text.substr(std::min(text.find_first_not_of(kBlanks), text.size()));
}
size_t end_without_blanks(std::string_view text) { return text.find_last_not_of(kBlanks) + 1; }

}  // namespace

void append(Events& events, Event event) {
    if (event.text.empty()) return;
    if (event.kind != Event::Kind::kToolStart && !events.empty() &&
        events.back().kind == event.kind && events.back().call == event.call) {
        events.back().text += event.text;
        return;
    }
    events.push_back(std::move(event));
}

std::string text_of(const Events& events, Event::Kind kind) {
    std::string text;
    for (const Event& event : events)
        if (event.kind == kind) text += event.text;
    return text;
}

OutputParser::OutputParser(ParserOptions options) : options_(std::move(options)) {
    if (options_.reasoning == ReasoningFormat::kNone) options_.reasoning_open = false;
    drop_blanks_ = options_.reasoning_open;
}

const OutputParser::MarkerText* OutputParser::marker_at(std::string_view text) const {
    static constexpr MarkerText kMarkers[] = {
        {"<think>", Marker::kThink, true},
        {"</think>", Marker::kThinkEnd, true},
        {"<｜tool▁calls▁begin｜>", Marker::kCalls, false},
        {"<｜tool▁calls▁end｜>", Marker::kCallsEnd, false},
        {"<｜tool▁call▁begin｜>", Marker::kCall, false},
        {"<｜tool▁sep｜>", Marker::kSeparator, false},
        {"<｜tool▁call▁end｜>", Marker::kCallEnd, false},
        {"<｜tool▁outputs▁begin｜>", Marker::kOther, false},
        {"<｜tool▁outputs▁end｜>", Marker::kOther, false},
        {"<｜tool▁output▁begin｜>", Marker::kOther, false},
        {"<｜tool▁output▁end｜>", Marker::kOther, false},
    };
    for (const MarkerText& marker : kMarkers) {
        const bool known = marker.is_think
                               ? options_.reasoning != ReasoningFormat::kNone && !in_call()
                               : options_.tools != ToolFormat::kNone;
        // A text that is shorter is compared as far as it goes.
        if (known && marker.text.substr(0, text.size()) == text.substr(0, marker.text.size())) {
            return &marker;
        }
    }
    return nullptr;
}

void OutputParser::push(std::string_view text, Events& out) {
    buffer_ += text;
    take(/*is_last=*/false, out);
}

void OutputParser::take(bool is_last, Events& out) {
    size_t begin = 0;
    while (begin < buffer_.size()) {
        const std::string_view rest = std::string_view(buffer_).substr(begin);
        const size_t plain = std::min(rest.find('<'), rest.size());
        if (plain > 0) {
            take_text(rest.substr(0, plain), out);
            begin += plain;
            continue;
        }
        const MarkerText* marker = marker_at(rest);
        if (marker && marker->text.size() <= rest.size()) {
            take_marker(*marker, out);
            begin += marker->text.size();
        } else if (marker && !is_last) {
            break;
        } else {
            take_text("<", out);
            ++begin;
        }
    }
    buffer_.erase(0, begin);
}

void OutputParser::finish(Events& out) {
    take(/*is_last=*/true, out);
    switch (state_) {
        case State::kName:
        case State::kOpening:
            refuse(out);
            break;
        case State::kReasoning:
            end_reasoning(out);
            break;
        case State::kStart:
        case State::kContent:
            if (!drop_blanks_) append(out, {Event::Kind::kContent, std::exchange(blanks_, {})});
            break;
        default:
            break;
    }
}

bool OutputParser::in_reasoning() const {
    return state_ == State::kReasoning || (state_ == State::kStart && options_.reasoning_open);
}

bool OutputParser::in_call() const { return state_ >= State::kName && state_ <= State::kRefused; }

void OutputParser::take_text(std::string_view text, Events& out) {
    switch (state_) {
        case State::kStart:
            if (end_without_blanks(text) > 0) {
                state_ = options_.reasoning_open ? State::kReasoning : State::kContent;
            }
            [[fallthrough]];
        case State::kReasoning:
        case State::kContent:
            return take_trimmed(text, out);
        case State::kName:
            return take_name(text, out);
        case State::kOpening:
            return take_opening(text, out);
        case State::kArguments:
            return take_arguments(text, out);
        case State::kRefused:
            return append(out, {Event::Kind::kContent, std::string(text)});
        case State::kAfterArguments:
        case State::kEnded:
            return;
    }
}

// Blanks at the end wait for what comes after them.
void OutputParser::take_trimmed(std::string_view text, Events& out) {
    if (drop_blanks_) text = without_leading_blanks(text);
    if (text.empty()) return;
    const size_t size = end_without_blanks(text);
    if (size == 0) {
        blanks_ += text;
        return;
    }
    drop_blanks_ = false;
    std::string told = std::exchange(blanks_, std::string(text.substr(size)));
    told += text.substr(0, size);
    if (state_ == State::kContent) {
        append(out, {Event::Kind::kContent, std::move(told)});
    } else if (options_.stream_reasoning) {
        append(out, {Event::Kind::kReasoning, std::move(told)});
    } else {
        reasoning_ += told;
    }
}

void OutputParser::end_reasoning(Events& out) {
    append(out, {Event::Kind::kReasoning, std::exchange(reasoning_, {})});
    blanks_.clear();
}

void OutputParser::take_marker(const MarkerText& marker, Events& out) {
    const bool was_reasoning = in_reasoning();
    switch (marker.marker) {
        case Marker::kThink:
            if (state_ != State::kStart) return;
            blanks_.clear();
            drop_blanks_ = true;
            state_ = State::kReasoning;
            return;
        case Marker::kThinkEnd:
            if (!was_reasoning) return;
            end_reasoning(out);
            drop_blanks_ = true;
            state_ = State::kContent;
            return;
        case Marker::kSeparator:
            return separate(out);
        case Marker::kCallEnd:
        case Marker::kCallsEnd:
            if (!in_call()) return;
            return end_call(out);
        case Marker::kCalls:
        case Marker::kCall:
            if (state_ == State::kEnded) return;
            if (in_call()) end_call(out);
            if (state_ == State::kEnded) return;
            if (was_reasoning) end_reasoning(out);
            state_ = State::kContent;
            drop_blanks_ = true;
            if (marker.marker == Marker::kCalls) return;
            header_.clear();
            opening_.clear();
            separated_ = false;
            name_begin_ = 0;
            state_ = State::kName;
            return;
        case Marker::kOther:
            return;
    }
}

void OutputParser::separate(Events& out) {
    if (state_ == State::kRefused) return append(out, {Event::Kind::kContent, " "});
    if (state_ != State::kName) return;
    if (options_.tools == ToolFormat::kDeepSeekV31) {
        name_size_ = header_.size();
        header_ += ' ';
        return end_name(out);
    }
    if (!separated_) header_ += ' ';
    separated_ = true;
    name_begin_ = header_.size();
}

// The name of V3 ends with its line, that of V3.1 with the separator.
void OutputParser::take_name(std::string_view text, Events& out) {
    if (!separated_) {
        header_ += text;
    } else {
        const size_t line = text.find('\n');
        header_ += text.substr(0, line);
        if (line != std::string_view::npos) {
            name_size_ = header_.size() - name_begin_;
            end_name(out);
            return take_text(text.substr(line), out);
        }
    }
    if (header_.size() > kMaxHeader) refuse(out);
}

void OutputParser::end_name(Events& out) {
    const std::string_view name =
        without_leading_blanks(std::string_view(header_).substr(name_begin_, name_size_));
    name_begin_ = static_cast<size_t>(name.data() - header_.data());
    name_size_ = end_without_blanks(name);
    const auto& known = options_.tool_names;
    if (std::find(known.begin(), known.end(), name.substr(0, name_size_)) == known.end()) {
        return refuse(out);
    }
    state_ = State::kOpening;
}

void OutputParser::take_opening(std::string_view text, Events& out) {
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '{') {
            start_call(out);
            return take_arguments(text.substr(i), out);
        }
        header_ += text[i];
        opening_ += text[i];
        // A fence, which V3.1 does without, is the only thing that may stand here.
        const std::string_view seen = without_leading_blanks(opening_);
        const std::string_view fence = "```json";
        const bool is_fence = seen.substr(0, fence.size()) == fence.substr(0, seen.size());
        const bool only_blanks_follow =
            seen.size() <= fence.size() || end_without_blanks(seen) <= fence.size();
        if (!is_fence || !only_blanks_follow || header_.size() > kMaxHeader) {
            refuse(out);
            return take_text(text.substr(i + 1), out);
        }
    }
}

void OutputParser::start_call(Events& out) {
    append(out, {Event::Kind::kToolStart, header_.substr(name_begin_, name_size_), num_calls_++});
    blanks_.clear();
    depth_ = 0;
    in_string_ = escaped_ = false;
    state_ = State::kArguments;
}

void OutputParser::take_arguments(std::string_view text, Events& out) {
    size_t size = 0;
    while (size < text.size() && state_ == State::kArguments) {
        const char c = text[size++];
        if (in_string_) {
            if (escaped_)
                escaped_ = false;
            else if (c == '\\')
                escaped_ = true;
            else if (c == '"')
                in_string_ = false;
        } else if (c == '"') {
            in_string_ = true;
        } else if (c == '{' || c == '[') {
            ++depth_;
        } else if ((c == '}' || c == ']') && --depth_ == 0) {
            state_ = State::kAfterArguments;
        }
    }
    append(out, {Event::Kind::kToolArguments, std::string(text.substr(0, size)), num_calls_ - 1});
    if (state_ == State::kAfterArguments && options_.one_call) state_ = State::kEnded;
}

void OutputParser::end_call(Events& out) {
    if (state_ == State::kName && separated_) {
        name_size_ = header_.size() - name_begin_;
        end_name(out);
    } else if (state_ == State::kName) {
        refuse(out);
    }
    const bool only_blanks = end_without_blanks(opening_) == 0;
    if (state_ == State::kOpening && only_blanks) {
        start_call(out);
        append(out, {Event::Kind::kToolArguments, "{}", num_calls_ - 1});
    } else if (state_ == State::kOpening) {
        refuse(out);
    }
    const bool was_call = state_ == State::kArguments || state_ == State::kAfterArguments;
    drop_blanks_ = was_call;  // text keeps its blanks
    state_ = was_call && options_.one_call ? State::kEnded : State::kContent;
}

// The call so far is text, and so is the rest of it.
void OutputParser::refuse(Events& out) {
    append(out, {Event::Kind::kContent, std::exchange(blanks_, {}) + std::exchange(header_, {})});
    opening_.clear();
    state_ = State::kRefused;
}

}  // namespace aerie::parse
