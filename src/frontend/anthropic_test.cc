// Anthropic's API.
#include <gmock/gmock.h>

#include "frontend/testing/frontend_fixture.h"

namespace aerie::frontend {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

const std::string kTools = R"(,"tools":[{"name":"weather","description":"d","input_schema":
    {"type":"object","properties":{"city":{"type":"string"}}}}])";
const std::string kCall =
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>"
    "{\"city\": \"北京\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";

class AnthropicTest : public FrontendFixture {
  protected:
    static std::string body_of(const std::string& more = "") {
        return R"({"model":"m","max_tokens":90,"messages":[{"role":"user","content":"Hello"}])" +
               more + "}";
    }
    // The message that a stream's events make; checks their grammar.
    static Json joined(const std::string& text, std::vector<std::string>* names = nullptr) {
        Json message;
        int index = -1;
        bool open = false, ended = false;
        std::string arguments;
        for (size_t at = 0; at < text.size();) {
            const size_t line = text.find('\n', at), end = text.find("\n\n", at);
            const std::string name = text.substr(at + 7, line - at - 7);
            EXPECT_EQ(text.substr(at, 7), "event: ");
            const Json event = *Json::parse(text.substr(line + 7, end - line - 7));
            at = end + 2;
            EXPECT_EQ(event["type"], Json(name));
            EXPECT_FALSE(ended);
            if (names) names->push_back(name);
            if (name == "message_start") {
                message = event["message"];
            } else if (name == "content_block_start") {
                EXPECT_FALSE(std::exchange(open, true));
                EXPECT_EQ(event["index"], Json(++index));
                message.find("content")->push_back(event["content_block"]);
            } else if (name == "content_block_delta") {
                EXPECT_TRUE(open && event["index"] == Json(index));
                Json& block = message.find("content")->as_array().back();
                const Json& delta = event["delta"];
                for (const char* part : {"text", "thinking"}) {
                    if (delta["type"] != Json(std::string(part) + "_delta")) continue;
                    block.set(part, block[part].as_string() + delta[part].as_string());
                }
                if (delta["type"] == Json("input_json_delta")) {
                    arguments += delta["partial_json"].as_string();
                }
            } else if (name == "content_block_stop") {
                EXPECT_TRUE(std::exchange(open, false) && event["index"] == Json(index));
                Json& block = message.find("content")->as_array().back();
                if (block["type"] == Json("tool_use")) {
                    block.set("input", *Json::parse(std::exchange(arguments, {})));
                }
            } else if (name == "message_delta") {
                EXPECT_FALSE(open);
                for (const char* part : {"stop_reason", "stop_sequence"}) {
                    message.set(part, event["delta"][part]);
                }
                message.set("usage", event["usage"]);
            }
            ended = name == "message_stop" || name == "error";
        }
        EXPECT_TRUE(ended) << text;
        return without_ids(message);
    }
    static Json without_ids(Json message) {
        message.set("id", "");
        for (Json& block : message.find("content")->as_array()) {
            if (block.find("id")) block.set("id", "");
        }
        return message;
    }
    std::string prompt() { return tokenizer().decode(engine_->requests().back().prompt, false); }
};

TEST_F(AnthropicTest, AMessageHasItsBlocksAndUsage) {
    start([](const Request&) {
        Script script = says("why\n</think>\n\nLet me look.\n" + kCall);
        script.cached_tokens = 3;
        return script;
    });
    const auto reply = post(
        "/v1/messages", body_of(kTools + R"(,"thinking":{"type":"enabled","budget_tokens":2000})"));
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json body = json(reply);
    EXPECT_THAT(body["id"].as_string(), testing::MatchesRegex("msg_[0-9a-f]{24}"));
    EXPECT_EQ(without_ids(body)["content"].dump(),
              R"([{"type":"thinking","thinking":"why","signature":""},)"
              R"({"type":"text","text":"Let me look."},)"
              R"({"type":"tool_use","id":"","name":"weather","input":{"city":"北京"}}])");
    EXPECT_EQ(body["stop_reason"], Json("tool_use"));
    const auto num_prompt = static_cast<int64_t>(engine_->requests()[0].prompt.size());
    EXPECT_EQ(body["usage"]["input_tokens"], Json(num_prompt - 3));
    EXPECT_EQ(body["usage"]["cache_read_input_tokens"], Json(3));
    EXPECT_THAT(prompt(), EndsWith("<｜User｜>Hello<｜Assistant｜><think>"));
    // The same call's input tokens, without max_tokens.
    const auto count =
        post("/v1/messages/count_tokens", body_of(kTools + R"(,"thinking":{"type":"enabled"})"));
    EXPECT_EQ(json(count)["input_tokens"], Json(num_prompt));
}

TEST_F(AnthropicTest, TheStreamIsTheMessage) {
    Script script;
    start([&](const Request&) { return script; });
    const std::string kTexts[] = {"why\n</think>\n\nSo 🦅.\n" + kCall + "and", "", kCall + kCall,
                                  "Hi STOP"};
    for (const std::string& text : kTexts) {
        for (const int step : {1, 4, 100}) {
            script = says(text);
            script.step = step;
            const std::string more =
                kTools + R"(,"thinking":{"type":"enabled"},"stop_sequences":["STOP"])";
            const Json whole = without_ids(json(post("/v1/messages", body_of(more))));
            std::vector<std::string> names;
            const Json streamed =
                joined(post("/v1/messages", body_of(more + R"(,"stream":true)")).body, &names);
            ASSERT_EQ(streamed.dump(), whole.dump()) << text << " step " << step;
            EXPECT_EQ(names[0], "message_start");
            EXPECT_EQ(names[1], "ping");
            EXPECT_EQ(names[names.size() - 2], "message_delta");
        }
    }
    script = says("Hi STOP now");
    const Json stopped = json(post("/v1/messages", body_of(R"(,"stop_sequences":["STOP"])")));
    EXPECT_EQ(stopped["stop_reason"], Json("stop_sequence"));
    EXPECT_EQ(stopped["stop_sequence"], Json("STOP"));
    EXPECT_EQ(stopped["content"].as_array()[0]["text"], Json("Hi "));
}

TEST_F(AnthropicTest, HistoryBecomesTheTemplatesMessages) {
    start([](const Request&) { return says("x"); });
    const auto reply =
        post("/v1/messages", R"({"max_tokens":5,"system":[{"type":"text","text":"be"},
        {"type":"text","text":"kind","cache_control":{"type":"ephemeral"}}],"metadata":{"user_id":"u"},
        "messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
        {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},
          {"type":"redacted_thinking","data":"x"},{"type":"text","text":"see"},
          {"type":"tool_use","id":"1","name":"f","input":{"x":1}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","is_error":true,
          "content":[{"type":"text","text":"4"},{"type":"text","text":"2"}]},
          {"type":"text","text":"and?"}]},
        {"role":"assistant","content":"Well"}]})");
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(
        prompt(),
        "<｜begin▁of▁sentence｜>be\nkind<｜User｜>a\nb<｜Assistant｜></"
        "think>see<｜tool▁calls▁begin｜>"
        "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"x\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        "<｜end▁of▁sentence｜><｜tool▁output▁begin｜>Error: 4\n2<｜tool▁output▁end｜>"
        "<｜User｜>and?<｜Assistant｜></think>Well");
}

TEST_F(AnthropicTest, MaxTokensIsWhatIsLeftAtMost) {
    start([](const Request&) { return says("x"); });
    EXPECT_EQ(post("/v1/messages",
                   R"({"max_tokens":32000,"messages":[{"role":"user","content":"Hello"}]})")
                  .status,
              200);
    const Request request = engine_->requests().back();
    EXPECT_EQ(request.sampling.max_new_tokens, 200 - static_cast<int>(request.prompt.size()));
}

TEST_F(AnthropicTest, ErrorsHaveItsEnvelope) {
    FrontendOptions options;
    options.api_key = "key";
    start([](const Request&) { return Script{.refusal = "node-0 is down"}; }, options);
    const auto error = [&](const std::string& path, const std::string& body, int status,
                           const char* type, const std::string& headers = "x-api-key: key\r\n") {
        const auto reply = post(path, body, headers);
        EXPECT_EQ(reply.status, status) << reply.body;
        const Json parsed = json(reply);
        EXPECT_EQ(parsed["type"], Json("error"));
        EXPECT_EQ(parsed["error"]["type"], Json(type));
        return parsed["error"]["message"].as_string();
    };
    EXPECT_EQ(error("/v1/messages", body_of(), 529, "overloaded_error"), "node-0 is down");
    error("/v1/messages", body_of(), 401, "authentication_error", "x-api-key: no\r\n");
    error("/v1/messages", "{", 400, "invalid_request_error");
    error("/v1/messages/batches", "{}", 404, "not_found_error");
    const std::pair<const char*, const char*> kBad[] = {
        {R"({"messages":[{"role":"user","content":"x"}]})", "max_tokens must be a whole number"},
        {R"({"max_tokens":1,"messages":[]})", "messages must be a list"},
        {R"({"max_tokens":1,"messages":[{"role":"system","content":"x"}]})",
         "messages[0].role must be user or assistant, got \"system\""},
        {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image"}]}]})",
         "messages[0].content[0].type must be text or tool_result"},
        {R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],"tools":[{"type":"bash_20250124","name":"bash"}]})",
         "tools[0].type must be \"custom\""},
        {R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"any"}})",
         "tools has none"},
        {R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"tool"}})",
         "tool_choice.name must be a string"},
        {R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],"stop_sequences":[""]})",
         "stop_sequences must be"},
        {R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],"thinking":{"type":"x"}})",
         "thinking.type must be"},
    };
    for (const auto& [body, message] : kBad) {
        EXPECT_THAT(error("/v1/messages", body, 400, "invalid_request_error"), HasSubstr(message));
    }
    client().send("HEAD / HTTP/1.1\r\n\r\n");
    EXPECT_EQ(client().reply(true).status, 200);
}

TEST_F(AnthropicTest, AFailureInAStreamIsAnEvent) {
    start([](const Request&) {
        return Script{
            .tokens = ids("some text"), .finish = FinishReason::kAbort, .error = "it died"};
    });
    const auto reply = post("/v1/messages", body_of(R"(,"stream":true)"));
    EXPECT_EQ(reply.status, 200);
    EXPECT_THAT(reply.body, EndsWith("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":"
                                     "\"overloaded_error\",\"message\":\"it died\"}}\n\n"));
}

}  // namespace
}  // namespace aerie::frontend
