#include "parse/formats.h"

namespace aerie::parse {
namespace {

struct ReasoningName {
    const char* name;
    ReasoningFormat format;
};
struct ToolName {
    const char* name;
    ToolFormat format;
};
constexpr ReasoningName kReasoningNames[] = {{"deepseek-r1", ReasoningFormat::kDeepSeekR1},
                                             {"deepseek-v3", ReasoningFormat::kDeepSeekV3}};
constexpr ToolName kToolNames[] = {{"deepseekv3", ToolFormat::kDeepSeekV3},
                                   {"deepseekv31", ToolFormat::kDeepSeekV31}};

template <typename Table, typename Format>
const char* find_name(const Table& table, Format format) {
    for (const auto& entry : table)
        if (entry.format == format) return entry.name;
    return "";
}
template <typename Table>
std::vector<std::string> all_names(const Table& table) {
    std::vector<std::string> names;
    for (const auto& entry : table) names.emplace_back(entry.name);
    return names;
}

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

}  // namespace

std::optional<ReasoningFormat> reasoning_format(std::string_view name) {
    for (const auto& entry : kReasoningNames)
        if (name == entry.name) return entry.format;
    return std::nullopt;
}
std::optional<ToolFormat> tool_format(std::string_view name) {
    for (const auto& entry : kToolNames)
        if (name == entry.name) return entry.format;
    return std::nullopt;
}
const char* name_of(ReasoningFormat format) { return find_name(kReasoningNames, format); }
const char* name_of(ToolFormat format) { return find_name(kToolNames, format); }
std::vector<std::string> reasoning_format_names() { return all_names(kReasoningNames); }
std::vector<std::string> tool_format_names() { return all_names(kToolNames); }

Formats formats_of_template(std::string_view source) {
    Formats formats;
    if (contains(source, "</think>")) {
        // R1's template knows no switch.
        formats.reasoning = contains(source, "thinking") ? ReasoningFormat::kDeepSeekV3
                                                         : ReasoningFormat::kDeepSeekR1;
    }
    if (contains(source, "<｜tool▁call▁begin｜>")) {
        formats.tools =
            contains(source, "```json") ? ToolFormat::kDeepSeekV3 : ToolFormat::kDeepSeekV31;
    }
    return formats;
}

bool prompt_opens_reasoning(ReasoningFormat format, std::string_view prompt,
                            std::string_view begun) {
    if (format == ReasoningFormat::kNone || contains(begun, "</think>")) return false;
    prompt = prompt.substr(0, prompt.find_last_not_of(" \t\r\n") + 1);
    if (prompt.ends_with("<think>") || contains(begun, "<think>")) return true;
    return format == ReasoningFormat::kDeepSeekR1 && begun.empty() && !prompt.ends_with("</think>");
}

}  // namespace aerie::parse
