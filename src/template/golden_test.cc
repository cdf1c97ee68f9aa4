// The same text as Python's Jinja2 for every golden case. tests/text/make_goldens.py writes the files.
#include <gtest/gtest.h>

#include "base/json.h"
#include "template/chat_template.h"

namespace aerie {
namespace {

Json read_golden(const std::string& name) {
    auto golden = read_json_file(AERIE_SOURCE_DIR "/tests/text/" + name);
    EXPECT_TRUE(golden.ok()) << golden.message();
    return golden ? *std::move(golden) : Json::object();
}

Result<std::string> render(const std::string& source, const Json& variables) {
    auto compiled = ChatTemplate::compile(source);
    if (!compiled) return compiled.error();
    return compiled->render(variables);
}

// The text, or a failure where Python has one; the wording of raise_exception is the template's.
void expect_as_python(const Result<std::string>& result, const Json& row) {
    static const std::string kRaised = "TemplateError: ";
    if (row.find("text")) {
        ASSERT_TRUE(result.ok()) << result.message() << "\n" << row.dump();
        ASSERT_EQ(result.value(), row["text"].as_string()) << row.dump();
        return;
    }
    ASSERT_FALSE(result.ok()) << result.value() << "\n" << row.dump();
    const std::string& error = row["error"].as_string();
    if (error.starts_with(kRaised)) {
        EXPECT_EQ(result.message(), error.substr(kRaised.size()));
    } else {
        EXPECT_TRUE(result.message().starts_with("chat template, line ")) << result.message();
    }
}

TEST(TemplateGolden, ConversationsAsPython) {
    const Json golden = read_golden("golden_templates.json");
    int num_texts = 0;
    for (const Json& row : golden["cases"].as_array()) {
        const std::string& source = golden["templates"][row["template"].as_string()].as_string();
        expect_as_python(render(source, row["variables"]), row);
        if (HasFatalFailure()) return;
        num_texts += row.find("text") != nullptr;
    }
    EXPECT_GE(num_texts, 200);
}

TEST(TemplateGolden, SnippetsAsPython) {
    const Json golden = read_golden("golden_snippets.json");
    int num_texts = 0;
    for (const Json& row : golden["cases"].as_array()) {
        expect_as_python(render(row["source"].as_string(), golden["variables"]), row);
        if (HasFatalFailure()) return;
        num_texts += row.find("text") != nullptr;
    }
    EXPECT_GE(num_texts, 100);
}

// What is in the repository is what the goldens were made from.
TEST(TemplateGolden, ModelsTemplatesAreTheGoldens) {
    const Json golden = read_golden("golden_templates.json");
    for (const auto& [name, dir] : {std::pair("demo", "/models/demo"),
                                    std::pair("deepseek_v3", "/tests/text/deepseek-v3-tokenizer")}) {
        auto source = find_chat_template(std::string(AERIE_SOURCE_DIR) + dir);
        ASSERT_TRUE(source.ok()) << source.message();
        EXPECT_EQ(*source, golden["templates"][name].as_string());
    }
}

}  // namespace
}  // namespace aerie
