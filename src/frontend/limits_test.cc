// What a request may ask for is bounded by settings, and the refusal names the setting.
#include <gmock/gmock.h>

#include "frontend/testing/frontend_fixture.h"

namespace aerie::frontend {
namespace {

using testing::HasSubstr;

class LimitsTest : public FrontendFixture {
  protected:
    void start_with_small_limits() {
        FrontendOptions options;
        options.defaults.limits = {.max_json_depth = 8,
                                   .max_messages = 2,
                                   .max_tools = 1,
                                   .max_stop_strings = 2,
                                   .max_n = 3,
                                   .max_logit_bias = 1};
        start([](const Request&) { return says("hello"); }, options);
    }
    std::string refusal(const std::string& path, const std::string& body) {
        const auto reply = post(path, body);
        EXPECT_EQ(reply.status, 400) << reply.body;
        const Json error = json(reply)["error"];
        return error["message"].is_string() ? error["message"].as_string() : "";
    }
};

const std::string kMessage = R"({"role":"user","content":"a"})";

std::string chat(const std::string& messages, const std::string& more = "") {
    return R"({"max_tokens":2,"messages":[)" + messages + "]" + more + "}";
}

TEST_F(LimitsTest, AreNamedInTheRefusal) {
    start_with_small_limits();
    const struct {
        const char *field, *setting;
    } kCases[] = {
        {R"(,"n":4)", "from 1 to 3 (http_max_n), got 4"},
        {R"(,"stop":["a","b","c"])", "at most 2 strings (http_max_stop_strings), got 3"},
        {R"(,"logit_bias":{"1":1,"2":1})", "at most 1 (http_max_logit_bias)"},
        {R"(,"tools":[{"function":{"name":"f"}},{"function":{"name":"g"}}])",
         "at most 1 tools (http_max_tools)"},
        {R"(,"x":[[[[[[[[1]]]]]]]])", "at most 8 levels (http_max_json_depth): line 1"},
    };
    for (const auto& test : kCases) {
        EXPECT_THAT(refusal("/v1/chat/completions", chat(kMessage, test.field)),
                    HasSubstr(test.setting));
    }
    EXPECT_EQ(post("/v1/chat/completions",
                   chat(kMessage, R"(,"n":3,"stop":["a","b"],"logit_bias":{"1":1},)"
                                  R"("tools":[{"function":{"name":"f"}}])"))
                  .status,
              200);
}

TEST_F(LimitsTest, MessagesAreCountedInEveryApi) {
    start_with_small_limits();
    const std::string two = kMessage + "," + kMessage, three = two + "," + kMessage;
    for (const char* path :
         {"/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/tokenize"}) {
        EXPECT_EQ(post(path, chat(two)).status, 200) << path;
        EXPECT_THAT(refusal(path, chat(three)),
                    HasSubstr("messages must be at most 2 (http_max_messages), got 3"));
    }
    EXPECT_THAT(refusal("/v1/responses", R"({"input":[)" + three + "]}"),
                HasSubstr("(http_max_messages), got 3"));
}

}  // namespace
}  // namespace aerie::frontend
