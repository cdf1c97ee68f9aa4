#include "parse/output_parser.h"

#include <gtest/gtest.h>

#include <random>

namespace aerie::parse {

void PrintTo(const Event& event, std::ostream* out) {
    *out << static_cast<int>(event.kind) << ":" << event.call << ":\"" << event.text << '"';
}

namespace {

using Kind = Event::Kind;

Event content(const char* text) { return {Kind::kContent, text}; }
Event reasoning(const char* text) { return {Kind::kReasoning, text}; }
Event start(const char* name, int call) { return {Kind::kToolStart, name, call}; }
Event arguments(const char* text, int call) { return {Kind::kToolArguments, text, call}; }

constexpr auto kR1 = ReasoningFormat::kDeepSeekR1;
constexpr auto kV3 = ToolFormat::kDeepSeekV3;
constexpr auto kV31 = ToolFormat::kDeepSeekV31;

struct Case {
    const char* what;
    ParserOptions options;
    std::string text;
    Events events;
};

ParserOptions thinks(bool open, ToolFormat tools = ToolFormat::kNone) {
    return {.reasoning = kR1, .reasoning_open = open, .tools = tools, .tool_names = {"f", "g"}};
}
ParserOptions calls(ToolFormat tools) { return {.tools = tools, .tool_names = {"f", "get time"}}; }

const std::string kBegin = "<｜tool▁calls▁begin｜>", kEnd = "<｜tool▁calls▁end｜>";

std::string v31(const std::string& name, const std::string& args) {
    return "<｜tool▁call▁begin｜>" + name + "<｜tool▁sep｜>" + args + "<｜tool▁call▁end｜>";
}
std::string v3(const std::string& name, const std::string& args) {
    return "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + name + "\n```json\n" + args +
           "\n```<｜tool▁call▁end｜>";
}

std::vector<Case> cases() {
    ParserOptions one = calls(kV31);
    one.one_call = true;
    ParserOptions at_once = thinks(true);
    at_once.stream_reasoning = false;
    return {
        {"nothing is parsed",
         {},
         " <think>a</think>\n" + kBegin,
         {content((" <think>a</think>\n" + kBegin).c_str())}},
        {"open, but not parsed",
         {.reasoning_open = true},
         "why</think>so",
         {content("why</think>so")}},
        {"opened by the prompt",
         thinks(true),
         "\n why \n</think>\n\nBecause. \n",
         {reasoning("why"), content("Because. \n")}},
        {"opened by the output",
         thinks(false),
         " \n<think>\nwhy</think> so",
         {reasoning("why"), content("so")}},
        {"opened by both", thinks(true), "<think>why</think>so", {reasoning("why"), content("so")}},
        {"never closed", thinks(true), "why 1 < 2 </thin \n", {reasoning("why 1 < 2 </thin")}},
        {"empty", thinks(true), "\n\n</think>\n\nso", {content("so")}},
        {"nothing at all", thinks(true), " \n", {}},
        {"thinking is off", thinks(false), "  so <b>\n", {content("  so <b>\n")}},
        {"markers out of place", thinks(false), "a</think>b<think>c", {content("abc")}},
        {"a second marker",
         thinks(true),
         "a<think>b</think>c</think>d<think>e",
         {reasoning("ab"), content("cde")}},
        {"as one event", at_once, "a b</think>c", {reasoning("a b"), content("c")}},
        {"as one event, not closed", at_once, "a b", {reasoning("a b")}},

        {"V3.1",
         calls(kV31),
         "Let me see.\n\n" + kBegin + v31("f", R"({"x":1})") + kEnd,
         {content("Let me see."), start("f", 0), arguments(R"({"x":1})", 0)}},
        {"V3",
         calls(kV3),
         kBegin + v3("f", "{\"x\":\n [1, {}]}") + kEnd,
         {start("f", 0), arguments("{\"x\":\n [1, {}]}", 0)}},
        {"V3, parallel",
         calls(kV3),
         kBegin + v3("f", "{}") + "\n" + v3("get time", R"({"a":"}\"]{<"})") + kEnd,
         {start("f", 0), arguments("{}", 0), start("get time", 1),
          arguments(R"({"a":"}\"]{<"})", 1)}},
        {"V3.1, parallel",
         calls(kV31),
         kBegin + v31("f", "{}") + v31("f", R"({"终":"止"})") + kEnd + "\n",
         {start("f", 0), arguments("{}", 0), start("f", 1), arguments(R"({"终":"止"})", 1)}},
        {"no arguments",
         calls(kV31),
         kBegin + v31("f", " ") + kEnd,
         {start("f", 0), arguments("{}", 0)}},
        {"no arguments, V3",
         calls(kV3),
         kBegin + "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f<｜tool▁call▁end｜>" + kEnd,
         {start("f", 0), arguments("{}", 0)}},
        {"no markers around and after",
         calls(kV31),
         "a " + std::string("<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}"),
         {content("a"), start("f", 0), arguments("{}", 0)}},
        {"text after",
         calls(kV31),
         kBegin + v31("f", "{}") + kEnd + "\nand so",
         {start("f", 0), arguments("{}", 0), content("and so")}},
        {"after the arguments",
         calls(kV31),
         kBegin + v31("f", "{} ``` x") + kEnd,
         {start("f", 0), arguments("{}", 0)}},
        {"cut off in the arguments",
         calls(kV31),
         kBegin + "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"x\": [1",
         {start("f", 0), arguments("{\"x\": [1", 0)}},
        {"ended in the arguments",
         calls(kV31),
         kBegin + v31("f", "{\"x\": \"") + kEnd,
         {start("f", 0), arguments("{\"x\": \"", 0)}},
        {"reasoning's markers in the arguments",
         thinks(false, kV31),
         kBegin + v31("f", R"({"x":"</think>"})"),
         {start("f", 0), arguments(R"({"x":"</think>"})", 0)}},

        {"an unknown name, V3.1",
         calls(kV31),
         "So: \n" + kBegin + v31("nope", R"({"x":1})") + v31("f", "{}") + kEnd,
         {content("So: \nnope {\"x\":1}"), start("f", 0), arguments("{}", 0)}},
        {"an unknown name, V3",
         calls(kV3),
         kBegin + v3("nope", "{}") + "\n" + v3("nope", "{}") + kEnd,
         {content("function nope\n```json\n{}\n```\nfunction nope\n```json\n{}\n```")}},
        {"a list as arguments", calls(kV31), kBegin + v31("f", "[1]") + kEnd, {content("f [1]")}},
        {"no separator",
         calls(kV31),
         kBegin + "<｜tool▁call▁begin｜>f{}<｜tool▁call▁end｜>",
         {content("f{}")}},
        {"cut off in the name",
         calls(kV31),
         "a\n" + kBegin + "<｜tool▁call▁begin｜>f",
         {content("a\nf")}},
        {"cut off before the arguments",
         calls(kV31),
         "<｜tool▁call▁begin｜>f<｜tool▁sep｜>",
         {content("f ")}},
        {"a name without end",
         calls(kV31),
         "<｜tool▁call▁begin｜>" + std::string(600, 'f'),
         {content(std::string(600, 'f').c_str())}},
        {"markers out of place",
         calls(kV31),
         "a<｜tool▁sep｜>b" + kEnd + "c<｜tool▁output▁begin｜>d<｜tool",
         {content("abcd<｜tool")}},

        {"reasoning, then calls",
         thinks(true, kV31),
         "why\n</think>\n\nSo\n" + kBegin + v31("g", "{}") + kEnd,
         {reasoning("why"), content("So"), start("g", 0), arguments("{}", 0)}},
        {"calls end reasoning",
         thinks(true, kV31),
         "why\n" + kBegin + v31("g", "{}") + kEnd,
         {reasoning("why"), start("g", 0), arguments("{}", 0)}},
        {"one call",
         one,
         kBegin + v31("nope", "") + v31("f", "{}") + v31("f", "{}") + kEnd + "x",
         {content("nope "), start("f", 0), arguments("{}", 0)}},
    };
}

// `cuts`: bytes at which a piece ends; those within a character are moved to its end.
Events parse_in_pieces(const Case& test, std::vector<size_t> cuts) {
    OutputParser parser(test.options);
    Events events;
    size_t begin = 0;
    cuts.push_back(test.text.size());
    for (size_t end : cuts) {
        while (end < test.text.size() && (test.text[end] & 0xc0) == 0x80) ++end;
        if (end <= begin) continue;
        parser.push(std::string_view(test.text).substr(begin, end - begin), events);
        begin = end;
    }
    parser.finish(events);
    return events;
}

TEST(OutputParser, GivesTheSameEventsHoweverTheTextIsCut) {
    std::mt19937 random(7);
    for (const Case& test : cases()) {
        ASSERT_EQ(parse_in_pieces(test, {}), test.events) << test.what;
        for (size_t cut = 1; cut < test.text.size(); ++cut) {
            ASSERT_EQ(parse_in_pieces(test, {cut}), test.events) << test.what << ", cut at " << cut;
        }
        for (int round = 0; round < 200; ++round) {
            std::vector<size_t> cuts;
            for (size_t at = random() % 8; at < test.text.size(); at += 1 + random() % 8) {
                cuts.push_back(at);
            }
            ASSERT_EQ(parse_in_pieces(test, cuts), test.events) << test.what << ", round " << round;
        }
    }
}

// What is certain is passed on at once.
TEST(OutputParser, HoldsBackOnlyWhatMayBecomeSomethingElse) {
    OutputParser parser(thinks(true, kV31));
    const auto push = [&](const char* text) {
        Events events;
        parser.push(text, events);
        return events;
    };
    EXPECT_TRUE(parser.in_reasoning());
    EXPECT_EQ(push("why"), Events({reasoning("why")}));
    EXPECT_EQ(push(" not "), Events({reasoning(" not")}));
    EXPECT_EQ(push("</th"), Events());
    EXPECT_EQ(push("e"), Events({reasoning(" </the")}));
    EXPECT_EQ(push("</think>"), Events());
    EXPECT_FALSE(parser.in_reasoning());
    EXPECT_EQ(push("so"), Events({content("so")}));
    EXPECT_EQ(push(kBegin.c_str()), Events());
    EXPECT_EQ(push("<｜tool▁call▁begin｜>g<｜tool▁sep｜>"), Events());
    EXPECT_EQ(push("{\"x"), Events({start("g", 0), arguments("{\"x", 0)}));
    EXPECT_EQ(push("\":1}"), Events({arguments("\":1}", 0)}));
}

TEST(OutputParser, OneCallEndsTheOutput) {
    ParserOptions options = calls(kV31);
    options.one_call = true;
    OutputParser parser(options);
    Events events;
    parser.push("<｜tool▁call▁begin｜>f<｜tool▁sep｜>{", events);
    EXPECT_FALSE(parser.ended());
    parser.push("}", events);
    EXPECT_TRUE(parser.ended());
}

TEST(Formats, ThePromptSaysWhetherReasoningHasBegun) {
    constexpr auto kV3Thinks = ReasoningFormat::kDeepSeekV3;
    EXPECT_TRUE(prompt_opens_reasoning(kV3Thinks, "x<think>", ""));
    EXPECT_TRUE(prompt_opens_reasoning(kV3Thinks, "x<think>\n", "so far"));
    EXPECT_FALSE(prompt_opens_reasoning(kV3Thinks, "x<think>", "why</think>so"));
    EXPECT_FALSE(prompt_opens_reasoning(kV3Thinks, "<think> x</think>", ""));
    EXPECT_FALSE(prompt_opens_reasoning(kV3Thinks, "x", ""));
    EXPECT_TRUE(prompt_opens_reasoning(kR1, "x", ""));
    EXPECT_FALSE(prompt_opens_reasoning(kR1, "x", "So"));
    EXPECT_FALSE(prompt_opens_reasoning(kR1, "x</think>", ""));
    EXPECT_FALSE(prompt_opens_reasoning(ReasoningFormat::kNone, "x<think>", ""));
}

TEST(Formats, AreKnownByNameAndByTemplate) {
    EXPECT_EQ(reasoning_format("deepseek-r1"), kR1);
    EXPECT_EQ(tool_format("deepseekv31"), kV31);
    EXPECT_EQ(tool_format("hermes"), std::nullopt);
    EXPECT_STREQ(name_of(kV3), "deepseekv3");
    EXPECT_EQ(formats_of_template("{{ x }}").reasoning, ReasoningFormat::kNone);
    const Formats formats = formats_of_template(
        "{% if thinking %}<think>{% else %}</think>{% endif %}<｜tool▁call▁begin｜>");
    EXPECT_EQ(formats.reasoning, ReasoningFormat::kDeepSeekV3);
    EXPECT_EQ(formats.tools, kV31);
    EXPECT_EQ(formats_of_template("</think><｜tool▁call▁begin｜>```json").tools, kV3);
}

}  // namespace
}  // namespace aerie::parse
