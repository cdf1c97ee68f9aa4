// Reasoning and tool calls in chat.
#include <gmock/gmock.h>

#include <random>

#include "frontend/choice_text.h"
#include "frontend/testing/frontend_fixture.h"

namespace aerie::frontend {
namespace {

using parse::Event;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

const std::string kTools =
    R"(,"tools":[{"type":"function","function":{"name":"weather","parameters":
    {"type":"object","properties":{"city":{"type":"string"}}}}},{"function":{"name":"now"}}])";
const std::string kCalls =
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"北京 "
    "🦅\"}"
    "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
    "｜tool▁calls▁end｜>";
const std::string kThink = R"(,"chat_template_kwargs":{"thinking":true})";

class ChatFormatTest : public FrontendFixture {
  protected:
    Json chat(const std::string& more) {
        const auto reply = post("/v1/chat/completions", chat_body(more));
        EXPECT_EQ(reply.status, 200) << reply.body;
        return json(reply);
    }
    // The message that a stream's deltas make, without the ids of its calls.
    static Json joined(const std::vector<Json>& events) {
        std::string content, reasoning;
        Json calls = Json::array();
        for (const Json& event : events) {
            const Json delta = choice(event)["delta"];
            if (delta["content"].is_string()) content += delta["content"].as_string();
            if (delta["reasoning_content"].is_string()) {
                reasoning += delta["reasoning_content"].as_string();
            }
            if (!delta["tool_calls"].is_array()) continue;
            for (const Json& call : delta["tool_calls"].as_array()) {
                const auto index = static_cast<size_t>(call["index"].as_int());
                if (index == calls.as_array().size()) {
                    calls.push_back(call);
                    continue;
                }
                Json& function = *calls.as_array().at(index).find("function");
                function.set("arguments", function["arguments"].as_string() +
                                              call["function"]["arguments"].as_string());
            }
        }
        const bool has_other = !reasoning.empty() || !calls.as_array().empty();
        Json message = Json::object().set("role", "assistant");
        message.set("content", content.empty() && has_other ? Json() : Json(content))
            .set("reasoning_content", reasoning.empty() ? Json() : Json(reasoning))
            .set("tool_calls", calls.as_array().empty() ? Json() : calls);
        return without_ids(message);
    }
    static Json without_ids(Json message) {
        if (!message["tool_calls"].is_array()) return message;
        for (Json& call : message.find("tool_calls")->as_array()) {
            EXPECT_THAT(call["id"].as_string(), testing::MatchesRegex("call_[0-9a-f]{24}"));
            EXPECT_EQ(call["type"], Json("function"));
            call = Json::object().set("index", call["index"]).set("function", call["function"]);
        }
        return message;
    }
    std::string prompt() { return tokenizer().decode(engine_->requests().back().prompt, false); }
};

TEST_F(ChatFormatTest, ReasoningIsApart) {
    start([](const Request&) { return says("It is\n17.\n</think>\n\nThe answer: 17"); });
    const Json body = chat(kThink);
    EXPECT_EQ(choice(body)["message"]["reasoning_content"], Json("It is\n17."));
    EXPECT_EQ(choice(body)["message"]["content"], Json("The answer: 17"));
    const auto num_reasoning =
        body["usage"]["completion_tokens_details"]["reasoning_tokens"].as_int();
    EXPECT_EQ(num_reasoning, static_cast<int64_t>(ids("It is\n17.\n</think>").size()));
    // Not asked for, it is all content; without thinking the marker alone is left out.
    EXPECT_EQ(choice(chat(kThink + R"(,"separate_reasoning":false)"))["message"]["content"],
              Json("It is\n17.\n</think>\n\nThe answer: 17"));
    EXPECT_EQ(choice(chat(""))["message"]["content"], Json("It is\n17.\n\n\nThe answer: 17"));
    EXPECT_TRUE(choice(chat(""))["message"]["reasoning_content"].is_null());
}

TEST_F(ChatFormatTest, ReasoningThatIsNotClosedHasNoContent) {
    start([](const Request&) { return says("It is a long way STOP to go"); });
    Json message = choice(chat(kThink))["message"];
    EXPECT_EQ(message["reasoning_content"], Json("It is a long way STOP to go"));
    EXPECT_TRUE(message["content"].is_null());
    const Json stopped = choice(chat(kThink + R"(,"stop":"STOP")"));
    EXPECT_EQ(stopped["message"]["reasoning_content"], Json("It is a long way"));
    EXPECT_EQ(stopped["matched_stop"], Json("STOP"));
    EXPECT_EQ(stopped["finish_reason"], Json("stop"));
}

TEST_F(ChatFormatTest, ReasoningComesAtOnceWhereItIsNotStreamed) {
    start([](const Request&) { return says("one two three</think>four"); });
    const auto all = events(post("/v1/chat/completions",
                                 chat_body(kThink + R"(,"stream":true,"stream_reasoning":false)"))
                                .body);
    int num_deltas = 0;
    for (const Json& event : all)
        num_deltas += choice(event)["delta"]["reasoning_content"].is_string();
    EXPECT_EQ(num_deltas, 1);
    EXPECT_EQ(joined(all)["reasoning_content"], Json("one two three"));
}

TEST_F(ChatFormatTest, CallsAreParsed) {
    start([](const Request&) { return says("Let me look.\n\n" + kCalls); });
    const Json body = chat(kTools);
    const Json message = choice(body)["message"];
    EXPECT_EQ(choice(body)["finish_reason"], Json("tool_calls"));
    EXPECT_EQ(message["content"], Json("Let me look."));
    ASSERT_EQ(message["tool_calls"].as_array().size(), 2u);
    const Json& first = message["tool_calls"].as_array()[0];
    EXPECT_EQ(first["function"]["name"], Json("weather"));
    EXPECT_EQ(first["function"]["arguments"], Json("{\"city\": \"北京 🦅\"}"));
    EXPECT_EQ(message["tool_calls"].as_array()[1]["function"]["arguments"], Json("{}"));
    EXPECT_THAT(prompt(), HasSubstr("## Tools\nweather {\"type\": \"object\""));

    const Json one = choice(chat(kTools + R"(,"parallel_tool_calls":false)"));
    EXPECT_EQ(one["message"]["tool_calls"].as_array().size(), 1u);
    EXPECT_EQ(one["finish_reason"], Json("tool_calls"));
}

TEST_F(ChatFormatTest, WhereNoToolMayBeCalledCallsAreText) {
    start([](const Request&) { return says(kCalls); });
    for (const std::string& more : {kTools + R"(,"tool_choice":"none")", std::string()}) {
        const Json body = chat(more);
        EXPECT_EQ(choice(body)["message"]["content"],
                  Json("weather {\"city\": \"北京 🦅\"}now {}"));
        EXPECT_TRUE(choice(body)["message"]["tool_calls"].is_null());
        EXPECT_EQ(choice(body)["finish_reason"], Json("stop"));
        EXPECT_THAT(prompt(), Not(HasSubstr("## Tools")));
    }
}

TEST_F(ChatFormatTest, GrammarsGoToTheEngine) {
    start([](const Request&) { return says("7"); });
    const auto sent = [this](const std::string& more) {
        const auto reply = post("/v1/chat/completions", chat_body(more));
        EXPECT_EQ(reply.status, 200) << reply.body;
        return engine_->requests().back().sampling;
    };
    const SamplingParams plain = sent(R"(,"regex":"[0-9]","ignore_eos":true)");
    EXPECT_EQ(plain.grammar, (Grammar{Grammar::Kind::kRegex, "[0-9]", false}));
    EXPECT_FALSE(plain.ignore_eos) << "nothing but the end could follow";
    EXPECT_TRUE(sent(kThink + R"(,"regex":"[0-9]")").grammar.after_reasoning);
    EXPECT_EQ(sent(kTools + R"(,"tool_choice":"required")").grammar.kind,
              Grammar::Kind::kToolCalls);
    const auto bad = post("/v1/chat/completions", chat_body(R"(,"regex":"[0-9")"));
    EXPECT_EQ(bad.status, 400);
    EXPECT_EQ(json(bad)["error"]["param"], Json("regex"));
    EXPECT_THAT(json(bad)["error"]["message"].as_string(), HasSubstr("regex is refused: "));
    EXPECT_EQ(engine_->requests().size(), 3u) << "a bad grammar was queued";
}

TEST_F(ChatFormatTest, AnOutputThatIsCutOffIsNoFinishedCall) {
    start([](const Request&) {
        Script script = says(kCalls);
        script.tokens.resize(script.tokens.size() / 2);
        script.finish = FinishReason::kLength;
        script.matched_token = -1;
        return script;
    });
    EXPECT_EQ(choice(chat(kTools))["finish_reason"], Json("length"));
}

TEST_F(ChatFormatTest, StreamedEqualsWhole) {
    Script script;
    start([&](const Request&) { return script; });
    const std::string kTexts[] = {
        "Why?\n好\n</think>\n\nSo 🦅 it is.\n" + kCalls, "never closed 好", kCalls + " and 🦅",
        "a <b </thin</think><｜tool▁call▁begin｜>nope<｜tool▁sep｜>{}<｜tool▁call▁end｜>c"};
    for (const std::string& text : kTexts) {
        for (const std::string& more :
             {kThink, kThink + kTools, kTools + R"(,"stop":["so it","🦅 i"])",
              kThink + kTools + R"(,"stream_reasoning":false)"}) {
            for (const int step : {1, 3, 100}) {
                script = says(text);
                script.step = step;
                const Json whole = chat(more);
                const auto all = events(
                    post("/v1/chat/completions",
                         chat_body(more +
                                   R"(,"stream":true,"stream_options":{"include_usage":true})"))
                        .body);
                ASSERT_EQ(joined(all).dump(), without_ids(choice(whole)["message"]).dump())
                    << more << " step " << step;
                const Json last = choice(all[all.size() - 2]);
                ASSERT_EQ(last["finish_reason"], choice(whole)["finish_reason"]);
                ASSERT_EQ(last["matched_stop"], choice(whole)["matched_stop"]);
                ASSERT_EQ(all.back()["usage"], whole["usage"]);
            }
        }
    }
}

// One sequence of tokens, in every way to cut it into TokenOuts of 1 to 8 tokens: at first all
// ways, then, of a longer one, many.
TEST_F(ChatFormatTest, TheTextDoesNotDependOnHowTheTokensCome) {
    const std::string text = "hm 🦅\n</think>\n\n好 so\n" + kCalls + "\nok 🦅 STOP not this";
    api::Call call;
    call.stop = {"STOP", "hm!"};
    call.parser = {.reasoning = parse::ReasoningFormat::kDeepSeekV3,
                   .reasoning_open = true,
                   .tools = parse::ToolFormat::kDeepSeekV31,
                   .tool_names = {"weather", "now"}};
    const auto run = [&](const std::vector<int32_t>& tokens, const auto& next_size) {
        ChoiceText choice(tokenizer(), call, 0);
        api::Piece all;
        for (size_t at = 0; at < tokens.size() && all.finish == FinishReason::kNone;) {
            const size_t size = std::min<size_t>(next_size(), tokens.size() - at);
            TokenOut out;
            out.position = static_cast<int>(at);
            out.tokens.assign(tokens.begin() + at, tokens.begin() + at + size);
            at += size;
            if (at == tokens.size()) out.finish = FinishReason::kLength;
            auto piece = choice.take(out);
            EXPECT_TRUE(piece.ok());
            for (Event& event : piece->events) parse::append(all.events, std::move(event));
            all.finish = piece->finish;
            all.matched_string = piece->matched_string;
        }
        EXPECT_EQ(all.matched_string.empty(), tokens.size() < 20);
        return std::pair(all.events, choice.num_reasoning());
    };
    std::vector<int32_t> tokens = ids(text);
    const auto whole = run(tokens, [] { return 1000; });
    EXPECT_EQ(parse::text_of(whole.first, Event::Kind::kReasoning), "hm 🦅");
    EXPECT_EQ(parse::text_of(whole.first, Event::Kind::kContent), "好 sook 🦅 ");
    std::mt19937 random(3);
    for (int round = 0; round < 500; ++round) {
        ASSERT_EQ(run(tokens, [&] { return 1 + random() % 8; }), whole) << "round " << round;
    }
    for (size_t size = 1; size <= 8; ++size) ASSERT_EQ(run(tokens, [&] { return size; }), whole);
    tokens.resize(12);
    const auto first = run(tokens, [] { return 1000; });
    for (unsigned cuts = 0; cuts < 1u << (tokens.size() - 1); ++cuts) {
        size_t at = 0;
        ASSERT_EQ(run(tokens,
                      [&] {
                          size_t size = 1;
                          while (at + size < tokens.size() && !(cuts >> (at + size - 1) & 1))
                              ++size;
                          at += size;
                          return size;
                      }),
                  first)
            << cuts;
    }
}

TEST_F(ChatFormatTest, HistoryIsWrittenAsTheModelWroteIt) {
    start([](const Request&) { return says("x"); });
    const auto prompt_of = [&](const std::string& arguments, const std::string& result) {
        const auto reply = post("/v1/chat/completions",
                                R"({"messages":[{"role":"user","content":"a"},
            {"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f",
            "arguments":)" + arguments +
                                    R"(}},{"id":"2","function":{"name":"g","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"1","content":)" +
                                    result + "}]}");
        EXPECT_EQ(reply.status, 200) << reply.body;
        return prompt();
    };
    EXPECT_THAT(
        prompt_of(R"("{\"x\":1}")", R"("42")"),
        testing::AllOf(HasSubstr("f<｜tool▁sep｜>{\"x\":1}<｜tool▁call▁end｜>"),
                       HasSubstr("g<｜tool▁sep｜>{}"), HasSubstr("42<｜tool▁output▁end｜>")));
    EXPECT_THAT(
        prompt_of(R"({"x":1})", R"([{"type":"text","text":"4"},{"type":"text","text":"2"}])"),
        testing::AllOf(HasSubstr("f<｜tool▁sep｜>{\"x\": 1}"),
                       HasSubstr("4 2<｜tool▁output▁end｜>")));
}

TEST_F(ChatFormatTest, EffortIsTheTemplates) {
    start([](const Request&) { return says("x"); });
    chat(R"(,"reasoning_effort":"high")");
    EXPECT_THAT(prompt(), EndsWith("</think>"));  // thinking is what this template asks for
    chat(kThink + R"(,"reasoning_effort":"none")");
    EXPECT_THAT(prompt(), EndsWith("<think>"));
}

TEST_F(ChatFormatTest, ParsersAreAService) {
    start([](const Request&) { return says("x"); });
    const auto body = [](const std::string& text, const std::string& more) {
        return Json::object().set("text", text).dump().insert(1, more);
    };
    auto reply = post("/parse_function_call",
                      body("So\n" + kCalls, R"("tools":[{"function":{"name":"now"}}],)"));
    EXPECT_EQ(reply.body, R"({"normal_text":"So\nweather {\"city\": \"北京 🦅\"}","calls":)"
                          R"([{"tool_index":0,"name":"now","parameters":"{}"}]})");
    reply = post("/separate_reasoning", body("why</think>so", ""));
    EXPECT_EQ(reply.body, R"({"reasoning_text":"why","text":"so"})");
    reply = post("/separate_reasoning", body("why", R"("reasoning_parser":"deepseek-r1",)"));
    EXPECT_EQ(reply.body, R"({"reasoning_text":"why","text":""})");
    reply = post("/separate_reasoning", body("why", R"("reasoning_parser":"qwen3",)"));
    EXPECT_EQ(reply.status, 400);
    EXPECT_THAT(reply.body, HasSubstr("one of deepseek-r1, deepseek-v3, got \\\"qwen3\\\""));
}

}  // namespace
}  // namespace aerie::frontend
