// What a model writes, cut into pieces at the places that the first bytes say: the same events as
// whole.
#include "fuzz.h"
#include "parse/output_parser.h"

namespace aerie::fuzz {
namespace {

// A place between two characters.
size_t cut_near(std::string_view text, size_t at) {
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
    return std::min(at, text.size());
}

parse::Events events_of(const parse::ParserOptions& options, std::string_view text, size_t piece) {
    parse::OutputParser parser(options);
    parse::Events events;
    while (!text.empty()) {
        const size_t end = cut_near(text, piece);
        parse::Events more;
        parser.push(text.substr(0, end), more);
        for (parse::Event& event : more) parse::append(events, std::move(event));
        text.remove_prefix(end);
    }
    parse::Events more;
    parser.finish(more);
    for (parse::Event& event : more) parse::append(events, std::move(event));
    return events;
}

}  // namespace
}  // namespace aerie::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace aerie;
    if (size < 2) return 0;
    parse::ParserOptions options{.reasoning = static_cast<parse::ReasoningFormat>(data[0] % 3),
                                 .reasoning_open = (data[0] & 32) != 0,
                                 .tools = static_cast<parse::ToolFormat>((data[0] >> 2) % 3),
                                 .tool_names = {"f", "get_weather"},
                                 .one_call = (data[0] & 64) != 0};
    const std::string_view text = fuzz::text_of(data + 2, size - 2);
    const auto whole = fuzz::events_of(options, text, text.size());
    const auto cut = fuzz::events_of(options, text, size_t{1} + data[1] % 16);
    fuzz::require(whole == cut, "events do not depend on the pieces");
    return 0;
}
