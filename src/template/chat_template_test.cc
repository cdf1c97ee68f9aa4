#include "template/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <span>

namespace aerie {
namespace {

Result<std::string> render(const std::string& source, const std::string& variables = "{}") {
    auto compiled = ChatTemplate::compile(source);
    if (!compiled) return compiled.error();
    return compiled->render(Json::parse(variables).value());
}

std::string repeat(const std::string& text, int times) {
    std::string result;
    for (int i = 0; i < times; ++i) result += text;
    return result;
}

TEST(ChatTemplate, RendersAgainAndAgain) {
    auto compiled = ChatTemplate::compile("{% set ns = namespace(n=x) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}");
    ASSERT_TRUE(compiled.ok()) << compiled.message();
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(compiled->render(Json::object().set("x", i)).value(), std::to_string(i + 1));
    }
    EXPECT_FALSE(compiled->render(Json(3)).ok());
}

TEST(ChatTemplate, ErrorsNameTheLine) {
    const std::pair<const char*, const char*> cases[] = {
        {"a\nb\n{{ x.y }}", "chat template, line 3: 'x' is undefined"},
        {"{% if true %}\n\n{{ 1 + 'a' }}\n{% endif %}",
         "chat template, line 3: unsupported operand type(s) for +: 'int' and 'str'"},
        {"{#\n\n#}{{ 'a\nb' + 1 }}",
         "chat template, line 3: can only concatenate str (not \"int\") to str"},
        {"\n{% for x in y %}", "chat template, line 2: the template ends, expected {% endfor %} for "
                               "the block of line 2"},
        {"\n{{ a b }}", "chat template, line 2: expected '}}', found 'b'"},
        {"{% macro m() %}\n{{ none.a.b }}\n{% endmacro %}\n\n{{ m() }}",
         "chat template, line 2: 'None' has no attribute 'a'"},
        {"x {{ 'a }}", "chat template, line 1: a string without its end '"},
    };
    for (const auto& [source, message] : cases) {
        auto result = render(source);
        ASSERT_FALSE(result.ok()) << source;
        EXPECT_EQ(result.message(), message) << source;
    }
}

TEST(ChatTemplate, RaisedMessagesStandAlone) {
    auto result = render("\n{{ raise_exception('Roles must alternate: ' ~ r) }}", R"({"r": "user"})");
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.message(), "Roles must alternate: user");
}

TEST(ChatTemplate, RefusesByName) {
    const std::pair<const char*, const char*> cases[] = {
        {"{% include 'x' %}", "include"},
        {"{% extends 'x' %}", "extends"},
        {"{% do x.append(1) %}", "do"},
        {"{% for x in y recursive %}{% endfor %}", "recursive"},
        {"{{ f(*a) }}", "*"},
        {"{{ 1 | urlize }}", "urlize"},
        {"{{ 1 is weird }}", "weird"},
        {"{{ cycler(1) }}", "cycler"},
        {"{{ 'a'.encode() }}", "encode"},
        {"{{ '{:>5}'.format(1) }}", ":>5"},
        {"{{ 0x10 }}", "0x"},
        {"{% break %}", "break"},
        {"{{ 99999999999999999999 }}", "99999999999999999999"},
        {"{{ 9223372036854775807 + 1 }}", "64 bits"},
        {"{{ range }}", "function"},
        {"{% for x in [1] %}{% set y %}{% break %}{% endset %}{% endfor %}", "break"},
    };
    for (const auto& [source, name] : cases) {
        auto result = render(source);
        ASSERT_FALSE(result.ok()) << source;
        EXPECT_THAT(result.message(), testing::HasSubstr(name)) << source;
    }
}

void expect_refused(std::span<const std::string> sources) {
    for (const std::string& source : sources) {
        EXPECT_FALSE(render(source).ok()) << source.substr(0, 200);
    }
}

// Each would take all time or all memory.
TEST(ChatTemplate, BoundsWork) {
    const std::string sources[] = {
        "{% for a in range(100000) %}{% for b in range(100000) if false %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='xy') %}{% for i in range(99) %}{% set ns.s = ns.s.replace('x', ns.s) %}"
        "{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(a=[], b=[]) %}{% for i in range(200) %}{% set ns.a = [ns.a, ns.a] %}"
        "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(200) %}{% set ns.a = [ns.a, ns.a] %}"
        "{% endfor %}{{ ns.a }}{{ ns.a | tojson }}",
        "{{ 'x' * 9999999999 }}",
        "{{ [1] * 9999999999 }}",
        "{{ range(9999999999) }}",
        "{{ 'x'.center(9999999999) }}",
        "{{ 'a\nb' | indent(9999999999) }}",
        "{{ '%9999999999d' % 1 }}",
        "{{ 2 ** 9999999999 }}",
        "{{ [1] | tojson(indent=9999999999) }}",
    };
    expect_refused(sources);
}

// Each would take all of the stack.
TEST(ChatTemplate, BoundsDepth) {
    const std::string sources[] = {
        "{% set ns = namespace(s=[1]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor %}",
        "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{% if true %}{% for x in [1] %}{{ [[m() | upper]] }}{% endfor %}{% endif %}"
        "{% endmacro %}{{ m() }}",
        "{{ " + repeat("(", 100000) + "1" + repeat(")", 100000) + " }}",
        "{{ " + repeat("-", 100000) + "1 }}",
        "{{ " + repeat("not ", 100000) + "1 }}",
        "{{ 1" + repeat(" + 1", 100000) + " }}",
        "{{ 1" + repeat(" | abs", 100000) + " }}",
        "{{ a" + repeat(".a", 100000) + " }}",
        "{{ 1" + repeat(" if 1 else 1", 100000) + " }}",
        "{{ 1" + repeat(" is defined", 100000) + " }}",
        repeat("{% if 1 %}", 100000),
        repeat("{{ [", 100000),
        "{% set " + repeat("(", 100000) + "a %}",
    };
    expect_refused(sources);
    // Deep enough for any template that a person writes.
    EXPECT_EQ(render("{{ " + repeat("(", 30) + "1" + repeat(")", 30) + repeat(" + 1", 200) + " }}").value(),
              "201");
}

TEST(ChatTemplate, BoundsHostileConversations) {
    const std::string source =
        "{% for m in messages %}{{ m.content.split('a') | join('b') }}{{ m.content in m.content }}"
        "{{ m.content.replace('ab', 'c') | trim }}{% endfor %}";
    Json messages = Json::array();
    for (int i = 0; i < 5; ++i) {
        messages.push_back(Json::object().set("content", repeat("ab \xe4\xbd\xa0", 8'000)));
    }
    auto compiled = ChatTemplate::compile(source);
    ASSERT_TRUE(compiled.ok());
    EXPECT_TRUE(compiled->render(Json::object().set("messages", messages)).ok());  // and soon
    EXPECT_TRUE(compiled->render(Json::object().set("messages", Json::Array{
                    Json::object().set("content", "broken \xff\xe4 utf-8")})).ok());
}

class TemplateFiles : public testing::Test {
  protected:
    void SetUp() override {
        dir_ = testing::TempDir() + "/template_" +
               testing::UnitTest::GetInstance()->current_test_info()->name();
        std::filesystem::create_directories(dir_);
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }
    void write(const std::string& name, const std::string& text) {
        std::ofstream(dir_ + "/" + name) << text;
    }
    std::string dir_;
};

TEST_F(TemplateFiles, FindsTheTemplate) {
    EXPECT_FALSE(find_chat_template(dir_).ok());
    write("tokenizer_config.json", "{}");
    EXPECT_THAT(find_chat_template(dir_).message(), testing::HasSubstr("no chat template"));
    write("tokenizer_config.json", R"({"chat_template": 3})");
    EXPECT_THAT(find_chat_template(dir_).message(), testing::HasSubstr("chat_template"));
    write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "R"}]})");
    EXPECT_THAT(find_chat_template(dir_).message(), testing::HasSubstr("default"));
    write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "R"},
                                                         {"name": "default", "template": "D"}]})");
    EXPECT_EQ(find_chat_template(dir_).value(), "D");
    write("tokenizer_config.json", R"({"chat_template": "C"})");
    EXPECT_EQ(find_chat_template(dir_).value(), "C");
    write("chat_template.jinja", "J");
    EXPECT_EQ(find_chat_template(dir_).value(), "J");
    write("mine.jinja", "M");
    EXPECT_EQ(find_chat_template(dir_, dir_ + "/mine.jinja").value(), "M");
    EXPECT_FALSE(find_chat_template(dir_, dir_ + "/none.jinja").ok());
}

}  // namespace
}  // namespace aerie
