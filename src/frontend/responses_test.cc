// OpenAI's Responses API.
#include <gmock/gmock.h>

#include "api/responses/store.h"
#include "frontend/testing/frontend_fixture.h"

namespace aerie::frontend {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

const std::string kTools = R"(,"tools":[{"type":"function","name":"weather","parameters":
    {"type":"object","properties":{"city":{"type":"string"}}}}])";
const std::string kCall =
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>"
    "{\"city\": \"北京\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";

class ResponsesTest : public FrontendFixture {
  protected:
    Json respond(const std::string& body) {
        const auto reply = post("/v1/responses", body);
        EXPECT_EQ(reply.status, 200) << reply.body;
        return json(reply);
    }
    std::string prompt() { return tokenizer().decode(engine_->requests().back().prompt, false); }
    // An output without what is drawn anew each time.
    static std::string plain(const Json& output) {
        Json list = output;
        for (Json& item : list.as_array()) {
            for (const char* name : {"id", "call_id"}) {
                if (item.find(name)) item.set(name, "");
            }
        }
        return list.dump();
    }
};

TEST_F(ResponsesTest, TheOutputHasItsItemsAndUsage) {
    start([](const Request&) {
        Script script = says("Let me look.\n" + kCall);
        script.cached_tokens = 2;
        return script;
    });
    const Json body = respond(
        R"({"input":"Hello","instructions":"Be kind","max_output_tokens":90)" + kTools + "}");
    EXPECT_THAT(body["id"].as_string(), testing::MatchesRegex("resp_[0-9a-f]{32}"));
    EXPECT_EQ(body["status"], Json("completed"));
    EXPECT_EQ(
        plain(body["output"]),
        R"([{"id":"","type":"message","status":"completed","role":"assistant","content":)"
        R"([{"type":"output_text","text":"Let me look.","annotations":[],"logprobs":[]}]},)"
        R"({"id":"","type":"function_call","status":"completed","call_id":"","name":"weather",)"
        R"("arguments":"{\"city\": \"北京\"}"}])");
    EXPECT_EQ(body["usage"]["input_tokens_details"]["cached_tokens"], Json(2));
    EXPECT_EQ(body["max_output_tokens"], Json(90));
    EXPECT_THAT(prompt(), HasSubstr("Be kind"));
    EXPECT_THAT(prompt(), EndsWith("<｜User｜>Hello<｜Assistant｜></think>"));
}

TEST_F(ResponsesTest, AConversationGoesOn) {
    start([](const Request&) { return says(kCall); });
    const Json first = respond(R"({"input":"Hello","instructions":"Once")" + kTools + "}");
    const std::string id = first["id"].as_string();
    const std::string call_id = first["output"].as_array()[0]["call_id"].as_string();
    respond(R"({"previous_response_id":")" + id + R"(","input":[{"type":"function_call_output",
        "call_id":")" +
            call_id + R"(","output":"sunny"},{"role":"user","content":
        [{"type":"input_text","text":"and?"}]}]})");
    EXPECT_EQ(prompt(), "<｜begin▁of▁sentence｜><｜User｜>Hello<｜Assistant｜></think>" + kCall +
                            "<｜end▁of▁sentence｜><｜tool▁output▁begin｜>sunny<｜tool▁output▁end｜>"
                            "<｜User｜>and?<｜Assistant｜></think>");
    // The same, brought along.
    respond(R"({"store":false,"input":[{"role":"user","content":"Hello"},{"type":"reasoning"},
        {"type":"function_call","call_id":"c","name":"weather","arguments":"{\"city\": \"北京\"}"},
        {"type":"function_call_output","call_id":"c","output":"sunny"}]})");
    EXPECT_THAT(prompt(), EndsWith(kCall + "<｜end▁of▁sentence｜><｜tool▁output▁begin｜>sunny"
                                           "<｜tool▁output▁end｜>"));
    const auto reply = post("/v1/responses", R"({"previous_response_id":"resp_0","input":"x"})");
    EXPECT_EQ(reply.status, 404);
    EXPECT_EQ(json(reply)["error"]["code"], Json("previous_response_not_found"));
}

TEST_F(ResponsesTest, TheStreamIsTheResponse) {
    Script script;
    start([&](const Request&) { return script; });
    const std::string kTexts[] = {"why</think>So 🦅.\n" + kCall + "and", "", kCall + kCall};
    for (const std::string& text : kTexts) {
        for (const int step : {1, 4, 100}) {
            script = says(text);
            script.step = step;
            const std::string request = R"({"input":"Hello")" + kTools;
            const Json whole = respond(request + "}");
            const std::string body = post("/v1/responses", request + R"(,"stream":true})").body;
            std::string deltas, last;
            int64_t number = 0;
            for (size_t at = 0; at < body.size();) {
                const size_t line = body.find('\n', at), end = body.find("\n\n", at);
                const Json event = *Json::parse(body.substr(line + 7, end - line - 7));
                last = event["type"].as_string();
                EXPECT_EQ(body.substr(at, line - at), "event: " + last);
                EXPECT_EQ(event["sequence_number"], Json(number++));
                if (last.ends_with(".delta")) deltas += event["delta"].as_string();
                if (last == "response.completed") {
                    EXPECT_EQ(plain(event["response"]["output"]), plain(whole["output"]));
                    EXPECT_EQ(event["response"]["usage"], whole["usage"]);
                }
                at = end + 2;
            }
            EXPECT_EQ(last, "response.completed");
            std::string all;
            for (const Json& item : whole["output"].as_array()) {
                all += item["arguments"].is_string()
                           ? item["arguments"].as_string()
                           : item["content"].as_array()[0]["text"].as_string();
            }
            EXPECT_EQ(deltas, all);
        }
    }
}

TEST_F(ResponsesTest, RefusalsNameItsFields) {
    start([](const Request&) { return says("x"); });
    const std::pair<const char*, const char*> kBad[] = {
        {"{}", "input must be"},
        {R"({"input":"x","max_output_tokens":0})", "max_output_tokens must be"},
        {R"({"input":[{"type":"item_reference"}]})", "input[0].type must be message"},
        {R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})",
         "input[0].content[0].type must be input_text"},
        {R"({"input":"x","tools":[{"type":"web_search"}]})", "tools[0].type must be"},
        {R"({"input":"x","text":{"format":{"type":"json_schema"}}})",
         "text.format.schema must be an object"},
        {R"({"input":"x","text":{"format":{"type":"yaml"}}})", "text.format.type must be text"},
        {R"({"input":"x","text":{"format":{"type":"json_schema","schema":{"type":"x"}}}})",
         "text.format is refused"},
        {R"({"input":"x","tool_choice":"required"})", "tool_choice"},
        {R"({"input":"x","background":true})", "background is not supported"},
    };
    for (const auto& [body, message] : kBad) {
        const auto reply = post("/v1/responses", body);
        EXPECT_EQ(reply.status, 400) << body;
        EXPECT_THAT(reply.body, HasSubstr(message));
    }
}

TEST(Conversations, AreBounded) {
    responses::Conversations conversations({.max_conversations = 2, .max_bytes = 100});
    conversations.put("a", "1");
    conversations.put("b", "2");
    EXPECT_EQ(conversations.find("a"), Json("1"));
    conversations.put("c", "3");  // a was used later than b
    EXPECT_FALSE(conversations.find("b"));
    EXPECT_TRUE(conversations.find("a"));
    conversations.put("d", std::string(99, 'x'));  // over the limit by itself: is not kept
    EXPECT_TRUE(conversations.find("a"));
    EXPECT_FALSE(conversations.find("d"));
}

}  // namespace
}  // namespace aerie::frontend
