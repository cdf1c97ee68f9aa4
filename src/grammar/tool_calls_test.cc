// What a model must write that has to call a tool is what the parser of its format reads.
#include <gmock/gmock.h>

#include "grammar/testing/fixture.h"
#include "parse/output_parser.h"
#include "parse/tool_grammar.h"

namespace aerie::grammar {
namespace {

using parse::ToolFormat;

Json tools() {
    auto made = Json::parse(R"([
        {"function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},
                     "required":["city"],"additionalProperties":false}}},
        {"function":{"name":"now","parameters":{}}}])");
    return *made;
}

std::string call(ToolFormat format, const std::string& name, const std::string& arguments) {
    return format == ToolFormat::kDeepSeekV3
               ? "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + name + "\n```json\n" + arguments +
                     "\n```<｜tool▁call▁end｜>"
               : "<｜tool▁call▁begin｜>" + name + "<｜tool▁sep｜>" + arguments + "<｜tool▁call▁end｜>";
}

class ToolCalls : public testing::TestWithParam<ToolFormat> {
  protected:
    std::string all(const std::vector<std::string>& calls) const {
        std::string text = "<｜tool▁calls▁begin｜>";
        for (size_t i = 0; i < calls.size(); ++i) {
            if (i > 0 && GetParam() == ToolFormat::kDeepSeekV3) text += '\n';
            text += calls[i];
        }
        return text + "<｜tool▁calls▁end｜>";
    }
    bool takes(const std::string& text, bool one_call, const Json& list = tools()) const {
        Compiler compiler(demo_tokenizer(), {.eos_ids = {*demo_tokenizer().eos_id()}});
        const Outcome outcome = compiler.compile(
            {Grammar::Kind::kToolCalls,
             parse::tool_call_grammar(GetParam(), list.as_array(), one_call), false});
        EXPECT_EQ(outcome.error, "");
        auto matcher = Matcher::create(outcome.compiled, false);
        for (const int32_t id : demo_tokenizer().encode(text)) {
            if (!(*matcher)->accept(id)) return false;
        }
        return (*matcher)->accept(*demo_tokenizer().eos_id()).ok();
    }
};

TEST_P(ToolCalls, AreWhatTheParserReads) {
    const std::string weather = call(GetParam(), "weather", R"({"city": "北京"})");
    const std::string now = call(GetParam(), "now", "{}");
    for (const bool one_call : {false, true}) {
        EXPECT_TRUE(takes(all({weather}), one_call));
        EXPECT_EQ(takes(all({weather, now, weather}), one_call), !one_call);
        EXPECT_FALSE(takes(all({}), one_call));
        EXPECT_FALSE(takes("Hello", one_call));
        EXPECT_FALSE(takes(all({call(GetParam(), "other", "{}")}), one_call));
        EXPECT_FALSE(takes(all({call(GetParam(), "weather", R"({"town": "x"})")}), one_call));
        EXPECT_FALSE(takes(all({call(GetParam(), "now", "5")}), one_call)) << "no object";
    }
    parse::OutputParser parser({.tools = GetParam(), .tool_names = {"weather", "now"}});
    parse::Events events;
    parser.push(all({weather, now}), events);
    parser.finish(events);
    ASSERT_EQ(events.size(), 4u);
    EXPECT_EQ(events[0].text + events[1].text, R"(weather{"city": "北京"})");
    EXPECT_EQ(events[2].text + events[3].text, "now{}");
}

// An object, whatever the schema's type.
TEST_P(ToolCalls, HaveAnObjectAsArguments) {
    for (const char* parameters :
         {R"({"type":"string"})", R"({"type":["object","null"]})", R"({"enum":[1,{"a":1}]})",
          R"({"const":{"a":1}})", R"({"type":"null","properties":{"a":{"type":"integer"}}})"}) {
        auto list = Json::parse(
            fmt::format(R"([{{"function":{{"name":"f","parameters":{}}}}}])", parameters));
        ASSERT_TRUE(list.ok());
        EXPECT_TRUE(parse::may_be_arguments(list->as_array()[0]["function"]["parameters"])) << parameters;
        EXPECT_TRUE(takes(all({call(GetParam(), "f", R"({"a":1})")}), true, *list)) << parameters;
        for (const char* other : {"1", "null", "\"a\"", "[]"}) {
            EXPECT_FALSE(takes(all({call(GetParam(), "f", other)}), true, *list))
                << parameters << " " << other;
        }
    }
    for (const char* none : {R"({"enum":[1]})", R"({"enum":[]})", R"({"enum":1})", R"({"const":1})"})
        EXPECT_FALSE(parse::may_be_arguments(*Json::parse(none))) << none;
}
INSTANTIATE_TEST_SUITE_P(Formats, ToolCalls,
                         testing::Values(ToolFormat::kDeepSeekV3, ToolFormat::kDeepSeekV31));

}  // namespace
}  // namespace aerie::grammar
