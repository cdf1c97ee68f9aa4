#include "template/chat_template.h"

#include <gtest/gtest.h>

namespace aerie {
namespace {

TEST(ChatTemplate, RendersDemo) {
    auto source = find_chat_template(AERIE_SOURCE_DIR "/models/demo");
    ASSERT_TRUE(source.ok()) << source.message();
    auto compiled = ChatTemplate::compile(*source);
    ASSERT_TRUE(compiled.ok()) << compiled.message();
    auto variables = Json::parse(R"({"bos_token": "<B>", "eos_token": "<E>",
        "add_generation_prompt": true, "messages": [{"role": "user", "content": "Hi"}]})");
    ASSERT_TRUE(variables.ok());
    auto text = compiled->render(*variables);
    ASSERT_TRUE(text.ok()) << text.message();
    EXPECT_EQ(*text, "<B><｜User｜>Hi<｜Assistant｜></think>");
}

}  // namespace
}  // namespace aerie
