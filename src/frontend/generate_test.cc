// Chat and completions, whole and streamed.
#include <gmock/gmock.h>

#include "frontend/testing/frontend_fixture.h"

namespace aerie::frontend {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class GenerateTest : public FrontendFixture {};

TEST_F(GenerateTest, ChatIsAnswered) {
    start([](const Request&) {
        Script script = says("Hi there");
        script.cached_tokens = 3;
        return script;
    });
    const auto reply = post("/v1/chat/completions", chat_body(R"(,"model":"any","seed":7)"));
    EXPECT_EQ(reply.status, 200) << reply.body;
    const Json body = json(reply);
    EXPECT_EQ(body["object"], Json("chat.completion"));
    EXPECT_EQ(body["model"], Json("any"));
    EXPECT_THAT(body["id"].as_string(), testing::MatchesRegex("chatcmpl-[0-9a-f]{32}"));
    EXPECT_EQ(choice(body)["message"]["content"], Json("Hi there"));
    EXPECT_EQ(choice(body)["message"]["role"], Json("assistant"));
    EXPECT_EQ(choice(body)["finish_reason"], Json("stop"));
    EXPECT_EQ(choice(body)["matched_stop"], Json(1));

    const Request request = engine_->requests().at(0);
    const auto prompt = ids("<｜begin▁of▁sentence｜><｜User｜>Hello<｜Assistant｜></think>");
    EXPECT_EQ(request.prompt, prompt);
    EXPECT_EQ(request.sampling.seed, 7u);
    EXPECT_EQ(request.sampling.max_new_tokens, 200 - static_cast<int>(prompt.size()));
    const int64_t num_prompt = static_cast<int64_t>(prompt.size());
    const int64_t num_output = static_cast<int64_t>(ids("Hi there").size()) + 1;
    EXPECT_EQ(body["usage"]["prompt_tokens"], Json(num_prompt));
    EXPECT_EQ(body["usage"]["completion_tokens"], Json(num_output));
    EXPECT_EQ(body["usage"]["total_tokens"], Json(num_prompt + num_output));
    EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], Json(3));
}

TEST_F(GenerateTest, ChatStreamHasRoleTextEndAndUsage) {
    start([](const Request&) { return says("Hi there"); });
    const auto reply = post("/chat/completions",
                            chat_body(R"(,"stream":true,"stream_options":{"include_usage":true})"));
    EXPECT_EQ(reply.header("Content-Type"), "text/event-stream; charset=utf-8");
    const auto all = events(reply.body);
    ASSERT_GE(all.size(), 4u);
    EXPECT_EQ(choice(all[0])["delta"], *Json::parse(R"({"role":"assistant","content":""})"));
    std::string text;
    for (size_t i = 1; i + 2 < all.size(); ++i) {
        EXPECT_EQ(all[i]["object"], Json("chat.completion.chunk"));
        EXPECT_EQ(all[i]["id"], all[0]["id"]);
        EXPECT_TRUE(choice(all[i])["finish_reason"].is_null());
        EXPECT_EQ(all[i].find("usage"), nullptr);
        text += choice(all[i])["delta"]["content"].as_string();
    }
    EXPECT_EQ(text, "Hi there");
    const Json& last = all[all.size() - 2];
    EXPECT_EQ(choice(last)["delta"], Json::object());
    EXPECT_EQ(choice(last)["finish_reason"], Json("stop"));
    EXPECT_EQ(all.back()["choices"], Json::array());
    EXPECT_EQ(all.back()["usage"]["completion_tokens"],
              Json(static_cast<int64_t>(ids("Hi there").size() + 1)));
}

// The streamed reply, put together, is the whole one: for every way to cut the tokens into steps,
// with stop strings, held-back characters and special tokens.
TEST_F(GenerateTest, StreamedEqualsWhole) {
    const std::string kText = "The 终止 quick 🦅 brown STOP fox\n\njumps. 好的";
    Script script = says(kText);
    start([&](const Request&) { return script; });
    const char* const kRequests[] = {
        R"("max_tokens":90)",
        R"("max_tokens":90,"stop":"STOP")",
        R"("max_tokens":90,"stop":["wn ST","P f"],"no_stop_trim":true)",
        R"("max_tokens":90,"stop":["止 q","🦅 b"])",
        R"("max_tokens":90,"stop":["absent"])",
        R"("max_tokens":90,"stop":["好的!"])",
        R"("max_tokens":90,"skip_special_tokens":false,"no_stop_trim":true)",
        R"("max_tokens":90,"stop":["T","j"],"min_tokens":3)",
        R"("max_tokens":90,"stop_regex":"S\\w+","stop":"fox")",
        R"("max_tokens":90,"stop_regex":["[jx].*","终."],"no_stop_trim":true)",
        R"("max_tokens":90,"stop_regex":"好.*$")",
    };
    for (const char* fields : kRequests) {
        for (const int step : {1, 2, 3, 5, 100}) {
            script.step = step;
            const std::string body =
                std::string(R"({"prompt":"x","return_token_ids":true,)") + fields;
            const Json whole = json(post("/v1/completions", body + "}"));
            const auto all = events(post("/v1/completions", body + R"(,"stream":true,
                "stream_options":{"include_usage":true}})")
                                        .body);
            std::string text;
            Json token_ids = Json::array();
            for (const Json& event : all) {
                const Json part = choice(event);
                if (!part.is_object()) continue;
                text += part["text"].as_string();
                if (!part["token_ids"].is_array()) continue;
                for (const Json& id : part["token_ids"].as_array()) token_ids.push_back(id);
            }
            const Json last = choice(all[all.size() - 2]);
            ASSERT_EQ(Json(text), choice(whole)["text"]) << fields << " step " << step;
            ASSERT_EQ(token_ids, choice(whole)["token_ids"]) << fields << " step " << step;
            ASSERT_EQ(last["finish_reason"], choice(whole)["finish_reason"]);
            ASSERT_EQ(last["matched_stop"], choice(whole)["matched_stop"]);
            ASSERT_EQ(all.back()["usage"], whole["usage"]);
        }
    }
}

TEST_F(GenerateTest, AStopStringEndsTheOutputAndTheRequest) {
    start([](const Request&) {
        Script script = says("one two STOP");
        script.tokens.pop_back();
        script.never_ends = true;
        return script;
    });
    const Json body = json(post("/v1/completions", R"({"prompt":"x","max_tokens":50,
        "stop":["nothing","o ST"]})"));
    EXPECT_EQ(choice(body)["text"], Json("one tw"));
    EXPECT_EQ(choice(body)["finish_reason"], Json("stop"));
    EXPECT_EQ(choice(body)["matched_stop"], Json("o ST"));
    EXPECT_TRUE(engine_->wait_aborted(engine_->requests().at(0).id));
    // Up to the token that completed it.
    const auto num_tokens = body["usage"]["completion_tokens"].as_int();
    const auto all = ids("one two STOP");
    const auto text_of = [&](int64_t count) {
        return tokenizer().decode(std::span(all).subspan(0, count), true);
    };
    EXPECT_THAT(text_of(num_tokens), HasSubstr("o ST"));
    EXPECT_THAT(text_of(num_tokens - 1), testing::Not(HasSubstr("o ST")));
}

TEST_F(GenerateTest, ChoicesHaveTheirIndexAndOnePrompt) {
    start([](const Request& request) {
        return says("choice " + std::to_string(request.sampling.choice));
    });
    const Json body = json(post("/v1/chat/completions", chat_body(R"(,"n":3,"seed":5)")));
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(choice(body, i)["index"], Json(i));
        EXPECT_EQ(choice(body, i)["message"]["content"], Json("choice " + std::to_string(i)));
    }
    const auto requests = engine_->requests();
    ASSERT_EQ(requests.size(), 3u);
    EXPECT_EQ(requests[0].sampling.seed, requests[2].sampling.seed);
    EXPECT_EQ(body["usage"]["prompt_tokens"],
              Json(static_cast<int64_t>(requests[0].prompt.size())));

    std::string text[3];
    int num_roles = 0, num_ends = 0;
    for (const Json& event :
         events(post("/v1/chat/completions", chat_body(R"(,"n":3,"stream":true)")).body)) {
        const Json part = choice(event);
        const Json& content = part["delta"]["content"];
        if (content.is_string()) text[part["index"].as_int()] += content.as_string();
        num_roles += part["delta"]["role"].is_string();
        num_ends += part["finish_reason"].is_string();
    }
    EXPECT_THAT(text, ElementsAre("choice 0", "choice 1", "choice 2"));
    EXPECT_EQ(num_roles, 3);
    EXPECT_EQ(num_ends, 3);
}

TEST_F(GenerateTest, SeveralPromptsHaveSeveralChoices) {
    start([](const Request& request) {
        return says(std::to_string(request.prompt.back()) + "-" +
                    std::to_string(request.sampling.choice));
    });
    const Json body = json(
        post("/v1/completions", R"({"prompt":[[5,6],[7,8,9]],"n":2,"return_token_ids":true})"));
    EXPECT_EQ(choice(body, 0)["text"], Json("6-0"));
    EXPECT_EQ(choice(body, 1)["text"], Json("6-1"));
    EXPECT_EQ(choice(body, 3)["text"], Json("9-1"));
    EXPECT_EQ(choice(body, 3)["index"], Json(3));
    EXPECT_EQ(choice(body, 3)["prompt_token_ids"].dump(), "[7,8,9]");
    EXPECT_EQ(body["usage"]["prompt_tokens"], Json(5));
}

TEST_F(GenerateTest, EchoRepeatsThePrompt) {
    start([](const Request&) { return says(" world"); });
    EXPECT_EQ(choice(json(post("/completions", R"({"prompt":"Hello","echo":true})")))["text"],
              Json("Hello world"));
    std::string text;
    for (const Json& event :
         events(post("/completions", R"({"prompt":"Hello","echo":true,"stream":true})").body)) {
        text += choice(event)["text"].as_string();
    }
    EXPECT_EQ(text, "Hello world");
}

TEST_F(GenerateTest, HashesAndIdsAreGivenWhereAskedFor) {
    start([](const Request& request) {
        EXPECT_TRUE(request.hash_logits);
        Script script = says("Hi");
        script.hashes = {0xabc, 0xffffffffffffffffu};
        return script;
    });
    const std::string more = R"(,"logits_hash":true,"return_token_ids":true)";
    const Json body = json(post("/v1/chat/completions", chat_body(more)));
    EXPECT_EQ(choice(body)["logits_hashes"].dump(), R"(["0000000000000abc","ffffffffffffffff"])");
    EXPECT_EQ(choice(body)["token_ids"].as_array().size(), ids("Hi").size() + 1);
    EXPECT_EQ(body["prompt_token_ids"].as_array().size(), engine_->requests()[0].prompt.size());
    const auto all =
        events(post("/v1/chat/completions", chat_body(more + R"(,"stream":true)")).body);
    EXPECT_EQ(all[0]["prompt_token_ids"], body["prompt_token_ids"]);
}

TEST_F(GenerateTest, LogprobsAreGivenForEachToken) {
    Script script = says("🦅 x");
    for (size_t i = 0; i < script.tokens.size(); ++i) {
        const float logprob = i == 1 ? -std::numeric_limits<float>::infinity() : -0.5f;
        script.logprobs.push_back({logprob, {{script.tokens[0], -0.25f}, {eos(), -2}}, {}});
    }
    start([&](const Request&) { return script; });
    const std::string more = R"(,"logprobs":true,"top_logprobs":2)";
    const Json whole = json(post("/v1/chat/completions", chat_body(more)));
    EXPECT_EQ(engine_->requests().back().sampling.num_top_logprobs, 2);
    const Json content = choice(whole)["logprobs"]["content"];
    ASSERT_EQ(content.as_array().size(), script.tokens.size());
    const Json& first = content.as_array()[0];
    const auto bytes = tokenizer().token_bytes(script.tokens[0]);
    ASSERT_EQ(first["bytes"].as_array().size(), bytes.size());
    EXPECT_EQ(first["bytes"].as_array()[0], Json(static_cast<unsigned char>(bytes[0])));
    EXPECT_EQ(first["logprob"], Json(-0.5));
    EXPECT_EQ(first["top_logprobs"].as_array()[1]["token"], Json("<｜end▁of▁sentence｜>"));
    EXPECT_EQ(content.as_array()[1]["logprob"], Json(-9999.0));
    for (const int step : {1, 2, 100}) {
        script.step = step;
        Json streamed = Json::array();
        for (const Json& event :
             events(post("/v1/chat/completions", chat_body(more + R"(,"stream":true)")).body)) {
            const Json logprobs = choice(event)["logprobs"];
            if (logprobs.is_null()) continue;
            for (const Json& token : logprobs["content"].as_array()) streamed.push_back(token);
        }
        EXPECT_EQ(streamed, content) << "step " << step;
    }
    EXPECT_TRUE(choice(json(post("/v1/chat/completions", chat_body())))["logprobs"].is_null());

    const std::string completion = R"({"prompt":"x","logprobs":2)";
    const Json legacy = choice(json(post("/v1/completions", completion + "}")))["logprobs"];
    EXPECT_EQ(legacy["tokens"].as_array().size(), script.tokens.size());
    EXPECT_EQ(legacy["top_logprobs"].as_array()[0].as_object().size(), 2u);
    EXPECT_EQ(legacy["text_offset"].as_array().back(), Json(3));  // after the eagle, " " and "x"
    Json offsets = Json::array();
    for (const Json& event :
         events(post("/v1/completions", completion + R"(,"stream":true})").body)) {
        const Json logprobs = choice(event)["logprobs"];
        if (logprobs.is_null()) continue;
        for (const Json& offset : logprobs["text_offset"].as_array()) offsets.push_back(offset);
    }
    EXPECT_EQ(offsets, legacy["text_offset"]);
}

TEST_F(GenerateTest, PenaltiesAndBiasReachTheEngine) {
    start([](const Request&) { return says("x"); });
    post("/v1/chat/completions", chat_body(R"(,"frequency_penalty":0.5,"presence_penalty":-1,
        "repetition_penalty":1.25,"logit_bias":{"5":-100,"17":2.5})"));
    const SamplingParams sampling = engine_->requests().at(0).sampling;
    EXPECT_EQ(sampling.frequency_penalty, 0.5);
    EXPECT_EQ(sampling.presence_penalty, -1);
    EXPECT_EQ(sampling.repetition_penalty, 1.25);
    EXPECT_EQ(sampling.logit_bias, (std::vector<LogitBias>{{5, -100}, {17, 2.5f}}));
    EXPECT_EQ(sampling.num_top_logprobs, -1);
}

TEST_F(GenerateTest, SeedsAreDrawnFreshOrFromTheSetting) {
    const auto seeds = [&](FrontendOptions options) {
        start([](const Request&) { return says("x"); }, std::move(options));
        for (int i = 0; i < 3; ++i) post("/v1/chat/completions", chat_body());
        std::vector<uint64_t> drawn;
        for (const Request& request : engine_->requests()) drawn.push_back(request.sampling.seed);
        return drawn;
    };
    FrontendOptions fixed;
    fixed.random_seed = 42;
    const auto first = seeds(fixed), again = seeds(fixed), fresh = seeds({});
    EXPECT_EQ(first, again);
    EXPECT_NE(first, fresh);
    EXPECT_NE(first[0], first[1]);
    EXPECT_NE(fresh[0], fresh[1]);
}

TEST_F(GenerateTest, DefaultsAreTheModels) {
    FrontendOptions options;
    options.defaults = {
        .temperature = 0.6, .top_p = 0.95, .top_k = 40, .min_p = 0.1, .repetition_penalty = 1.5};
    start([](const Request&) { return says("x"); }, options);
    post("/v1/completions", R"({"prompt":"x"})");
    post("/v1/completions", R"({"prompt":"x","temperature":0,"top_p":1,"top_k":-1,"min_p":0})");
    const auto requests = engine_->requests();
    EXPECT_EQ(requests[0].sampling.temperature, 0.6);
    EXPECT_EQ(requests[0].sampling.top_k, 40);
    EXPECT_EQ(requests[0].sampling.repetition_penalty, 1.5);
    EXPECT_EQ(requests[0].sampling.max_new_tokens, 16);
    EXPECT_EQ(requests[1].sampling.temperature, 0);
    EXPECT_EQ(requests[1].sampling.top_p, 1);
    EXPECT_EQ(requests[1].sampling.min_p, 0);
}

TEST_F(GenerateTest, TheTemplateGetsItsVariables) {
    start([](const Request&) { return says("x"); });
    const auto prompt_of = [&](const std::string& body) {
        const auto reply = post("/v1/chat/completions", body);
        EXPECT_EQ(reply.status, 200) << reply.body;
        return tokenizer().decode(engine_->requests().back().prompt, false);
    };
    EXPECT_THAT(prompt_of(chat_body(R"(,"chat_template_kwargs":{"thinking":true})")),
                testing::EndsWith("<think>"));
    EXPECT_THAT(prompt_of(chat_body(R"(,"add_generation_prompt":false)")),
                testing::EndsWith("Hello"));
    EXPECT_THAT(prompt_of(R"({"continue_final_message":true,"messages":[
                    {"role":"user","content":"a"},{"role":"assistant","content":"So"}]})"),
                testing::EndsWith("</think>So"));
    EXPECT_THAT(
        prompt_of(R"({"messages":[{"role":"developer","content":[{"type":"text","text":"be"},
            {"type":"text","text":"kind"}]},{"role":"user","content":"a"},
            {"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function",
             "function":{"name":"f","arguments":{"x":1}}}]},
            {"role":"tool","tool_call_id":"call_1","content":"42"}]})"),
        testing::AllOf(HasSubstr("be kind<｜User｜>a"), HasSubstr("f<｜tool▁sep｜>{\"x\": 1}"),
                       HasSubstr("42<｜tool▁output▁end｜>")));
}

}  // namespace
}  // namespace aerie::frontend
