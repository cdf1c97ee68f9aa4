// The formats in which models write their reasoning and their tool calls.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aerie::parse {

// Both stand between <think> and </think>. R1 reasons in every answer, its prompt begins the
// reasoning or the answer does; V3.1 reasons where the prompt ends with <think>.
enum class ReasoningFormat { kNone, kDeepSeekR1, kDeepSeekV3 };

// kDeepSeekV3:  <｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n{…}\n```<｜tool▁call▁end｜>
// kDeepSeekV31: <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>
// One after the other between <｜tool▁calls▁begin｜> and <｜tool▁calls▁end｜>.
enum class ToolFormat { kNone, kDeepSeekV3, kDeepSeekV31 };

struct Formats {
    ReasoningFormat reasoning = ReasoningFormat::kNone;
    ToolFormat tools = ToolFormat::kNone;
};

// By the names of the settings reasoning_parser (deepseek-r1, deepseek-v3) and tool_call_parser
// (deepseekv3, deepseekv31); nothing where there is no such format.
std::optional<ReasoningFormat> reasoning_format(std::string_view name);
std::optional<ToolFormat> tool_format(std::string_view name);
const char* name_of(ReasoningFormat format);  // "" for kNone
const char* name_of(ToolFormat format);
std::vector<std::string> reasoning_format_names();
std::vector<std::string> tool_format_names();

// What a chat template shows of its model's formats; kNone where it shows none.
Formats formats_of_template(std::string_view source);

// True where an answer begins inside the reasoning. prompt: the rendered chat, up to the answer;
// begun: what the prompt holds of the answer itself already.
bool prompt_opens_reasoning(ReasoningFormat format, std::string_view prompt, std::string_view begun);

}  // namespace aerie::parse
