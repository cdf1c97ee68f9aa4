// OutputParser: the text that a model writes → what it is: content, reasoning and tool calls.
//
// However the text is cut into pieces, the events, with neighbours of one kind joined, are the same.
// The markers themselves (<think>, </think>, <｜tool▁…｜>) are never part of an event, but for
// <think> and </think> within a call, where they are text that the model writes for the tool.
//
// Reasoning:
// - Blanks at both its ends and before the content that follows are left out.
// - Where </think> never comes, all of the output is reasoning and there is no content; so too where
//   a stop string (parse/stop_strings.h reads the text before this does) stands inside it: stop
//   strings end the output wherever they stand.
// - Where thinking is off the output is content. Only a <think> that comes first opens reasoning.
// - The beginning of tool calls ends reasoning that was not closed.
//
// Tool calls:
// - A call begins once its name, which must be one of `tool_names`, and the { of its arguments are
//   here. The arguments are passed on as the model writes them; none at all are {}.
// - What is no such call stays text: an unknown name, arguments that are no object, an output that
//   ends before the {. Then its separator is a blank.
// - Arguments end with their last }, or else where the call or the output ends: an output that was
//   cut off leaves arguments that are not whole.
// - Blanks before, between and after calls are left out, other text there is content.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parse/formats.h"

namespace aerie::parse {

struct Event {
    enum class Kind : unsigned char { kContent, kReasoning, kToolStart, kToolArguments };
    Kind kind = Kind::kContent;
    std::string text;  // of kToolStart the tool's name; never empty
    int call = -1;     // of the last two: index of the call, 0, 1, …
    bool operator==(const Event&) const = default;
};
using Events = std::vector<Event>;

// Appends, and joins what continues the last event.
void append(Events& events, Event event);
// The text of all events of that kind.
std::string text_of(const Events& events, Event::Kind kind);

struct ParserOptions {
    ReasoningFormat reasoning = ReasoningFormat::kNone;
    bool reasoning_open = false;    // the prompt has begun it; nothing where reasoning is kNone
    bool stream_reasoning = true;   // false: reasoning is one event, when it ends
    ToolFormat tools = ToolFormat::kNone;
    std::vector<std::string> tool_names = {};
    bool one_call = false;          // the output has ended with its first call
};

// One thread.
class OutputParser {
  public:
    explicit OutputParser(ParserOptions options);

    void push(std::string_view text, Events& out);  // whole characters
    void finish(Events& out);                       // no more text comes

    bool in_reasoning() const;
    bool ended() const { return state_ == State::kEnded; }  // by one_call; what follows is dropped

  private:
    enum class State : unsigned char {
        kStart,      // nothing but blanks has come
        kReasoning,
        kContent,
        kName,       // of a call, up to its arguments' format
        kOpening,    // what stands before the { of the arguments
        kArguments,
        kAfterArguments,
        kRefused,    // a call that stays text
        kEnded,
    };
    enum class Marker : unsigned char;
    struct MarkerText;

    const MarkerText* marker_at(std::string_view text) const;
    void take(bool is_last, Events& out);
    void take_text(std::string_view text, Events& out);
    void take_marker(const MarkerText& marker, Events& out);
    void take_trimmed(std::string_view text, Events& out);
    void take_name(std::string_view text, Events& out);
    void take_opening(std::string_view text, Events& out);
    void take_arguments(std::string_view text, Events& out);
    void separate(Events& out);
    void end_reasoning(Events& out);
    void end_name(Events& out);
    void start_call(Events& out);
    void end_call(Events& out);
    void refuse(Events& out);
    bool in_call() const;

    ParserOptions options_;
    State state_ = State::kStart;
    std::string buffer_;     // what may become a marker
    std::string blanks_;     // at the end of what has been told: left out, or told with what follows
    bool drop_blanks_ = false;
    std::string reasoning_;  // held back without stream_reasoning

    std::string header_;     // of a call, as text: up to the { of its arguments
    size_t name_begin_ = 0, name_size_ = 0;  // in header_
    bool separated_ = false;
    std::string opening_;    // of header_, what has come since the name
    int num_calls_ = 0;
    int depth_ = 0;          // of the arguments' brackets
    bool in_string_ = false, escaped_ = false;
};

}  // namespace aerie::parse
