// The parsers of answers as a service.
#include <fmt/ranges.h>

#include "api/openai/fields.h"
#include "api/openai/tools.h"
#include "frontend/handlers.h"
#include "parse/output_parser.h"

namespace aerie::frontend {
namespace {

using parse::Event;

// The format that `field` names, or the server's where the request names none. False, and `error`
// is set, where there is no such format or the server has none.
template <typename Format>
bool choose_format(const Json& body, const char* field,
                   std::optional<Format> (*find)(std::string_view),
                   const std::vector<std::string>& names, Format& format, api::ApiError& error) {
    const Json& name = body[field];
    if (name.is_null() && format != Format::kNone) return true;
    const auto found = name.is_string() ? find(name.as_string()) : std::nullopt;
    if (found) format = *found;
    error = {.message = fmt::format("{} must be one of {}, {}", field, fmt::join(names, ", "),
                                    openai::got(name)),
             .param = field};
    return found.has_value();
}

parse::Events parse_whole(parse::ParserOptions options, const std::string& text) {
    parse::OutputParser parser(std::move(options));
    parse::Events events;
    parser.push(text, events);
    parser.finish(events);
    return events;
}

api::ApiError wrong_text(const Json& text) {
    return {.message = "text must be a string, " + openai::got(text), .param = "text"};
}

}  // namespace

void Handlers::parse_function_call(HttpCall& call) {
    Json body;
    if (!read_body(call, body)) return;
    if (!body["text"].is_string()) return send_error(call, wrong_text(body["text"]));
    parse::ParserOptions options{.tools = options_.defaults.formats.tools};
    api::ApiError error;
    if (!choose_format(body, "tool_call_parser", parse::tool_format, parse::tool_format_names(),
                       options.tools, error)) {
        return send_error(call, error);
    }
    Json tools;
    if (auto bad = openai::read_tool_list(body["tools"], options_.defaults.limits, tools,
                                         options.tool_names)) {
        return send_error(call, *bad);
    }
    const parse::Events events = parse_whole(std::move(options), body["text"].as_string());
    Json calls = Json::array();
    for (const Event& event : events) {
        if (event.kind == Event::Kind::kToolStart) {
            calls.push_back(Json::object().set("tool_index", event.call).set("name", event.text));
        } else if (event.kind == Event::Kind::kToolArguments) {
            calls.as_array().back().set("parameters", event.text);
        }
    }
    send_json(call, Json::object()
                        .set("normal_text", parse::text_of(events, Event::Kind::kContent))
                        .set("calls", std::move(calls)));
}

void Handlers::separate_reasoning(HttpCall& call) {
    Json body;
    if (!read_body(call, body)) return;
    if (!body["text"].is_string()) return send_error(call, wrong_text(body["text"]));
    const std::string& text = body["text"].as_string();
    parse::ParserOptions options{.reasoning = options_.defaults.formats.reasoning};
    api::ApiError error;
    if (!choose_format(body, "reasoning_parser", parse::reasoning_format,
                       parse::reasoning_format_names(), options.reasoning, error)) {
        return send_error(call, error);
    }
    // What its prompt ended with is not known: a text that closes reasoning began inside it.
    options.reasoning_open = options.reasoning == parse::ReasoningFormat::kDeepSeekR1 ||
                             text.find("</think>") != std::string::npos;
    const parse::Events events = parse_whole(std::move(options), text);
    send_json(call, Json::object()
                        .set("reasoning_text", parse::text_of(events, Event::Kind::kReasoning))
                        .set("text", parse::text_of(events, Event::Kind::kContent)));
}

}  // namespace aerie::frontend
