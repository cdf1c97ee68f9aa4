#include <gmock/gmock.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <tuple>

#include "grammar/testing/fixture.h"

namespace aerie::grammar {
namespace {

using Kind = Grammar::Kind;
using testing::HasSubstr;

class GrammarTest : public testing::Test {
  protected:
    static Compiler& compiler() {
        static auto* made =
            new Compiler(demo_tokenizer(), {.eos_ids = {*demo_tokenizer().eos_id()}});
        return *made;
    }
    static int32_t eos() { return *demo_tokenizer().eos_id(); }

    static std::unique_ptr<Matcher> matcher(Kind kind, const std::string& text,
                                            bool after_reasoning = false) {
        const Outcome outcome = compiler().compile({kind, text, after_reasoning});
        EXPECT_EQ(outcome.error, "") << text;
        if (!outcome.compiled) return nullptr;
        return *Matcher::create(outcome.compiled, after_reasoning);
    }

    // "": the text's tokens, and then the end, are all allowed, one mask after the other. Else the
    // part of the text that is.
    static std::string refused(Matcher& matcher, const std::string& text) {
        std::vector<int32_t> ids = demo_tokenizer().encode(text);
        ids.push_back(eos());
        std::string allowed;
        std::vector<uint32_t> mask(matcher.num_words());
        for (const int32_t id : ids) {
            const Status filled = matcher.fill_mask(mask);
            EXPECT_TRUE(filled.ok()) << allowed;
            const bool in_mask = allows(mask, id);
            EXPECT_EQ(matcher.accept(id).ok(), in_mask)
                << "mask and matcher disagree after " << allowed;
            if (!in_mask) return allowed.empty() ? "(nothing)" : allowed;
            allowed += demo_tokenizer().token_bytes(id);
        }
        EXPECT_TRUE(matcher.is_terminated());
        return "";
    }
    static bool takes(Kind kind, const std::string& grammar, const std::string& text) {
        auto made = matcher(kind, grammar);
        return made && refused(*made, text).empty();
    }
    static std::string error_of(Kind kind, const std::string& text) {
        return compiler().compile({kind, text, false}).error;
    }
};

TEST_F(GrammarTest, AJsonSchemaAllowsWhatItDescribesAndNothingElse) {
    const std::string schema = R"({"type":"object","properties":{
        "name":{"type":"string"},"size":{"enum":["small","large",3]},
        "parts":{"type":"array","items":{"type":"object","properties":{"id":{"type":"integer"}},
                 "required":["id"],"additionalProperties":false},"maxItems":2},
        "more":{"anyOf":[{"type":"null"},{"type":"number"}]}},
        "required":["name","size","parts","more"],"additionalProperties":false})";
    EXPECT_TRUE(takes(
        Kind::kJsonSchema, schema,
        R"({"name": "Zürich", "size": "large", "parts": [{"id": 4}, {"id": -5}], "more": null})"));
    EXPECT_TRUE(
        takes(Kind::kJsonSchema, schema, R"({"name":"","size":3,"parts":[],"more":1.5e3})"));
    for (const char* wrong :
         {R"({"name": "a", "size": "huge", "parts": [], "more": null})",
          R"({"name": "a", "size": 3, "parts": [{"id": 1},{"id": 1},{"id": 1}], "more": 1})",
          R"({"name": "a", "size": 3, "parts": [], "more": true})",
          R"({"name": "a", "size": 3, "parts": [], "more": 1, "x": 1})", R"({"name": "a"})", "[]",
          "hello"}) {
        EXPECT_FALSE(takes(Kind::kJsonSchema, schema, wrong)) << wrong;
    }
}

TEST_F(GrammarTest, ASchemaMayReferToItself) {
    const std::string schema = R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object",
        "properties":{"value":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},
        "required":["value","next"],"additionalProperties":false}}})";
    EXPECT_TRUE(takes(Kind::kJsonSchema, schema,
                      R"({"value": 1, "next": {"value": 2, "next": {"value": 3, "next": null}}})"));
    EXPECT_FALSE(takes(Kind::kJsonSchema, schema, R"({"value": 1, "next": {"value": 2}})"));
}

TEST_F(GrammarTest, AnObjectAsJsonObject) {
    EXPECT_TRUE(
        takes(Kind::kJsonSchema, R"({"type":"object"})", R"({"a": [1, {"b": "c"}], "d": false})"));
    EXPECT_FALSE(takes(Kind::kJsonSchema, R"({"type":"object"})", "[1]"));
}

TEST_F(GrammarTest, RegexAndEbnf) {
    EXPECT_TRUE(takes(Kind::kRegex, "(yes|no), [0-9]{2,3}", "yes, 123"));
    EXPECT_FALSE(takes(Kind::kRegex, "(yes|no), [0-9]{2,3}", "yes, 1"));
    EXPECT_FALSE(takes(Kind::kRegex, "(yes|no), [0-9]{2,3}", "perhaps"));
    const std::string sum = "root ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" root \")\"\n";
    EXPECT_TRUE(takes(Kind::kEbnf, sum, "1+(2+3)+45"));
    EXPECT_FALSE(takes(Kind::kEbnf, sum, "1+"));
}

TEST_F(GrammarTest, StructuralTagsNewAndOld) {
    const std::string schema =
        R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false})";
    const std::string tag =
        R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<f="],
        "tags":[{"begin":"<f=g>","content":{"type":"json_schema","json_schema":)" +
        schema + R"(},"end":"</f>"}]}})";
    const std::string old =
        R"({"type":"structural_tag","triggers":["<f="],"structures":[{"begin":"<f=g>","schema":)" +
        schema + R"(,"end":"</f>"}]})";
    for (const std::string& text : {tag, old}) {
        EXPECT_TRUE(takes(Kind::kStructuralTag, text, "Well: <f=g>{\"a\": 1}</f> so."));
        EXPECT_FALSE(takes(Kind::kStructuralTag, text, "Well: <f=g>{\"b\": 1}</f> so."));
    }
}

TEST_F(GrammarTest, MarkersStandInToolCallsAndInNoString) {
    const std::string calls = R"({"type":"structural_tag","format":{"type":"sequence","elements":[
        {"type":"token","token":"<｜tool▁call▁begin｜>"},{"type":"const_string","value":"f"},
        {"type":"token","token":"<｜tool▁sep｜>"},
        {"type":"json_schema","json_schema":{"type":"object"}},
        {"type":"token","token":"<｜tool▁call▁end｜>"}]}})";
    EXPECT_TRUE(takes(Kind::kToolCalls, calls,
                      "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": \"b\"}<｜tool▁call▁end｜>"));
    EXPECT_FALSE(takes(
        Kind::kToolCalls, calls,
        "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": \"<｜tool▁sep｜>\"}<｜tool▁call▁end｜>"));
    EXPECT_FALSE(takes(Kind::kJsonSchema, R"({"type":"string"})", "\"</think>\""));
}

TEST_F(GrammarTest, BehindTheReasoningItBegins) {
    auto made = matcher(Kind::kRegex, "[0-9]+", true);
    std::vector<uint32_t> mask(made->num_words());
    ASSERT_TRUE(made->fill_mask(mask).ok());
    EXPECT_FALSE(allows(mask, eos())) << "an answer without what was asked for";
    EXPECT_EQ(refused(*made, "let me see < think: 7</think>42"), "");
    made = matcher(Kind::kRegex, "[0-9]+", true);
    EXPECT_EQ(refused(*made, "hm</think>x"), "hm</think>");
}

// Every token that may end the reasoning, from every point at which it may be: the mask allows what
// the matcher accepts.
TEST_F(GrammarTest, WhatEndsTheReasoningAndGoesOnObeysIt) {
    const auto token = [](const std::string& text) {
        const std::vector<int32_t> ids = demo_tokenizer().encode(text);
        EXPECT_EQ(ids.size(), 1u) << text;
        return ids.front();
    };
    int num_cleared = 0;
    for (const char* before : {"so", "</", "</think", "<</think"}) {
        std::vector<int32_t> ids;
        for (const char c : std::string(before)) ids.push_back(token(std::string(1, c)));
        const auto after = [&] {
            auto made = matcher(Kind::kRegex, "[.a-z]+", true);
            for (const int32_t id : ids) EXPECT_TRUE(made->accept(id).ok());
            return made;
        };
        const auto made = after();
        std::vector<uint32_t> mask(made->num_words()), again(made->num_words());
        ASSERT_TRUE(made->fill_mask(mask).ok());
        for (int32_t id = 0; id < demo_tokenizer().vocab_size(); ++id) {
            const std::string bytes(demo_tokenizer().token_bytes(id));
            if (id == eos() || bytes.find('>') == bytes.npos) continue;
            EXPECT_EQ(after()->accept(id).ok(), allows(mask, id)) << before << " " << bytes;
            num_cleared += !allows(mask, id);
        }
        ASSERT_TRUE(made->fill_mask(again).ok());
        EXPECT_EQ(mask, again) << "filling it changes nothing";
    }
    EXPECT_GT(num_cleared, 0) << "no token of this vocabulary is a case";
}

TEST_F(GrammarTest, BehindTheEndOnlyTheEndIsAllowed) {
    auto made = matcher(Kind::kRegex, "a");
    EXPECT_EQ(refused(*made, "a"), "");
    std::vector<uint32_t> mask(made->num_words());
    ASSERT_TRUE(made->fill_mask(mask).ok());
    for (int32_t id = 0; id < demo_tokenizer().vocab_size(); ++id) {
        ASSERT_EQ(allows(mask, id), id == eos()) << id;
    }
    EXPECT_TRUE(made->accept(eos()).ok());
    EXPECT_FALSE(made->accept(demo_tokenizer().encode("a").front()).ok());
}

TEST_F(GrammarTest, EqualGrammarsAreCompiledOnce) {
    const Grammar grammar{Kind::kRegex, "once[a-z]", false};
    EXPECT_FALSE(compiler().find(grammar).has_value());
    const auto first = compiler().compile(grammar).compiled;
    EXPECT_EQ(compiler().find(grammar)->compiled, first);
    EXPECT_EQ(compiler().compile(grammar).compiled, first);
}

TEST_F(GrammarTest, WhatWasUsedLongestAgoIsForgotten) {
    Compiler small(demo_tokenizer(), {.eos_ids = {eos()}, .max_cache_bytes = 1});
    (void)small.compile({Kind::kRegex, "a", false});
    (void)small.compile({Kind::kRegex, "b", false});
    EXPECT_FALSE(small.find({Kind::kRegex, "a", false}).has_value());
    EXPECT_TRUE(small.find({Kind::kRegex, "b", false}).has_value());
}

TEST_F(GrammarTest, WhatIsOutOfTimeIsAnError) {
    Compiler hurried(demo_tokenizer(), {.eos_ids = {eos()}, .limit_s = 0});
    const Outcome outcome = hurried.compile({Kind::kJsonSchema, R"({"type":"object"})", false});
    EXPECT_NE(outcome.compiled != nullptr,
              outcome.error.find("0 s") != std::string::npos);  // it may have been fast enough
}

// Holds up compilations until it is opened.
class Gate {
  public:
    void pass() {
        std::unique_lock lock(mutex_);
        ++num_waiting_;
        changed_.notify_all();
        changed_.wait(lock, [this] { return num_let_ > 0 || open_; });
        --num_let_;
        --num_waiting_;
        changed_.notify_all();
    }
    void let(int count) {
        std::lock_guard lock(mutex_);
        num_let_ += count;
        changed_.notify_all();
    }
    void open() {
        std::lock_guard lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }
    bool wait_for(int num_waiting) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, std::chrono::seconds(20),
                                 [&] { return num_waiting_ == num_waiting; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int num_waiting_ = 0, num_let_ = 0;
    bool open_ = false;
};

// More compilations than are replaced never end, as it seems: they are given up one by one, then
// nothing is compiled; as each ends, its thread serves again.
TEST_F(GrammarTest, NoThreadIsLostForGood) {
    const auto gate = std::make_shared<Gate>();  // shared with threads that may be left behind
    constexpr int kNumSlow = 1 + 4 + 2;  // the thread, its replacements, and two that wait
    Compiler slow(demo_tokenizer(), {.eos_ids = {eos()},
                                     .num_threads = 1,
                                     .limit_s = 0.4,
                                     .before_read = [gate](const Grammar& grammar) {
                                         if (grammar.text.starts_with("slow")) gate->pass();
                                     }});
    const auto quick = [&](int i) {
        return slow.compile({Kind::kRegex, fmt::format("quick{}", i), false});
    };
    int num_quick = 0;
    for (int i = 0; i < kNumSlow; ++i) {
        const Outcome outcome = slow.compile({Kind::kRegex, fmt::format("slow{}", i), false});
        const bool has_thread = i < 5;
        EXPECT_EQ(outcome.compiled, nullptr);
        EXPECT_EQ(outcome.busy, !has_thread) << i << outcome.error;
        EXPECT_THAT(outcome.error, HasSubstr(has_thread ? "takes more than" : "its turn"));
        const Outcome next = quick(num_quick++);
        EXPECT_EQ(next.compiled != nullptr, i < 4) << i << next.error;
        EXPECT_EQ(next.busy, i >= 4);
    }
    EXPECT_TRUE(gate->wait_for(5));
    EXPECT_THAT(slow.find({Kind::kRegex, "slow0", false})->error, HasSubstr("takes more than"));
    EXPECT_FALSE(slow.find({Kind::kRegex, "slow6", false})) << "it was never begun";
    gate->let(1);  // one ends
    EXPECT_TRUE(gate->wait_for(4));
    EXPECT_NE(quick(num_quick++).compiled, nullptr);
    gate->open();
    EXPECT_TRUE(gate->wait_for(0));
    for (int i = 0; i < 3; ++i) EXPECT_NE(quick(num_quick++).compiled, nullptr);
    EXPECT_NE(slow.compile({Kind::kRegex, "slow6", false}).compiled, nullptr);
}

// A burst: what waits for its turn is not blamed for what runs before it.
TEST_F(GrammarTest, TheLimitIsOfTheCompilationAlone) {
    Compiler one(demo_tokenizer(), {.eos_ids = {eos()},
                                    .num_threads = 1,
                                    .limit_s = 2,
                                    .before_read = [](const Grammar&) {
                                        std::this_thread::sleep_for(std::chrono::milliseconds(1200));
                                    }});
    std::mutex mutex;
    std::vector<Outcome> outcomes;
    for (const char* text : {"a", "b"}) {
        one.compile({Kind::kRegex, text, false}, [&](const Outcome& outcome) {
            std::lock_guard lock(mutex);
            outcomes.push_back(outcome);
        });
    }
    (void)one.compile({Kind::kRegex, "b", false});
    std::lock_guard lock(mutex);
    ASSERT_EQ(outcomes.size(), 2u);
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.error, "");
}

std::string repeated(const std::string& part, int times, const std::string& middle = "",
                     const std::string& end = "") {
    std::string text;
    for (int i = 0; i < times; ++i) text += part;
    text += middle;
    for (int i = 0; i < times; ++i) text += end;
    return text;
}

TEST_F(GrammarTest, WhatIsNoGrammarIsAnError) {
    EXPECT_NE(error_of(Kind::kJsonSchema, "{"), "");
    EXPECT_NE(error_of(Kind::kJsonSchema, R"({"type":"no such type"})"), "");
    EXPECT_NE(error_of(Kind::kJsonSchema, R"({"$ref":"#/$defs/missing"})"), "");
    EXPECT_NE(error_of(Kind::kRegex, "(a"), "");
    EXPECT_NE(error_of(Kind::kRegex, "a{2"), "");
    EXPECT_NE(error_of(Kind::kRegex, "(?=a)"), "");
    EXPECT_NE(error_of(Kind::kEbnf, "root ::= missing"), "");
    EXPECT_NE(error_of(Kind::kEbnf, "other ::= \"a\""), "");
    EXPECT_NE(error_of(Kind::kStructuralTag, R"({"type":"structural_tag","format":{"type":"x"}})"),
              "");
    EXPECT_NE(error_of(Kind::kStructuralTag, "[]"), "");
    EXPECT_THAT(error_of(static_cast<Kind>(77), "{}"), HasSubstr("77"));
}

// Texts that would make a parser recurse or expand without end.
TEST_F(GrammarTest, HostileGrammarsAreErrorsAtOnce) {
    std::vector<std::tuple<Kind, std::string, std::string>> hostile = {
        {Kind::kJsonSchema, repeated(R"({"items":)", 5000, "{}", "}"), "deep"},
        {Kind::kJsonSchema, R"({"enum":[)" + repeated("1,", 100000) + "1]}", "at most"},
        {Kind::kJsonSchema, R"({"anyOf":[)" + repeated("{},", 3000) + "{}]}", "at most 2000"},
        {Kind::kJsonSchema, R"({"const":"a\u0000b"})", "NUL"},
        {Kind::kJsonSchema, R"({"type":"string","pattern":"((a{9999}){9999}){9999}"})", "5000"},
        {Kind::kJsonSchema, R"({"type":"array","items":{},"minItems":1000000000})", "10000"},
        {Kind::kRegex, repeated("(", 5000, "a", ")"), "64 deep"},
        {Kind::kRegex, repeated("a|", 5000, "a"), "2000 alternatives"},
        {Kind::kRegex, "((a{1000}){1000}){1000}", "5000"},
        {Kind::kRegex, repeated("(a|aa)*", 800), "5000"},
        {Kind::kJsonSchema, R"({"anyOf":[)" + repeated(R"({"$ref":"#"},)", 900) + "{}]}", "$ref"},
        {Kind::kRegex, "a{999999999999999999999999}", "10000"},
        {Kind::kRegex, std::string("a\0b", 3), "NUL"},
        {Kind::kRegex, std::string(1 << 20, 'a'), "bytes"},
        {Kind::kEbnf, "root ::= " + repeated("(", 5000, "\"a\"", ")"), "64 deep"},
        {Kind::kEbnf, std::string("root ::= \"a\"\0", 13), "NUL"},
    };
    std::string many = R"({"type":"object","properties":{"x":{})";
    for (int i = 0; i < 100; ++i) {
        many += fmt::format(R"(,"p{}":{{"type":"string","pattern":"(ab|cd){{90}}"}})", i);
    }
    hostile.emplace_back(Kind::kJsonSchema, many + "}}", "come to more than 5000 parts");
    std::string bounds = R"({"type":"object","properties":{"x":{})";
    for (int i = 0; i < 200; ++i) {
        bounds += fmt::format(R"(,"p{}":{{"type":"string","maxLength":9000}})", i);
    }
    hostile.emplace_back(Kind::kJsonSchema, bounds + "}}", "come to more than 5000 parts");
    for (const auto& [kind, text, why] : hostile) {
        EXPECT_THAT(error_of(kind, text), HasSubstr(why)) << text.substr(0, 60);
    }
}

// What is long, but of few parts.
TEST_F(GrammarTest, NamesOfRulesAreOnePartEach) {
    std::string text = "root ::= a-rule-with-a-long-name-0000\n";
    for (int i = 0; i < 150; ++i) {
        text += fmt::format("a-rule-with-a-long-name-{:04} ::= \"x\" | a-rule-with-a-long-name-{:04}\n",
                            i, std::min(i + 1, 149));
    }
    text += "a-rule-with-a-long-name-of-the-end ::= \"y\"\n";
    EXPECT_GT(text.size(), 8000u);
    EXPECT_THAT(error_of(Kind::kEbnf, text), testing::Not(HasSubstr("parts")));
}

}  // namespace
}  // namespace aerie::grammar
