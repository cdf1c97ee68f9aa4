// What goes wrong, and everything that is not generation.
#include "frontend/frontend.h"

#include <gmock/gmock.h>

#include <thread>

#include "frontend/testing/frontend_fixture.h"

namespace aerie::frontend {
namespace {

using testing::HasSubstr;
using testing::Not;

class FrontendTest : public FrontendFixture {
  protected:
    static Script endless(const std::string& text) {
        Script script = says(text);
        script.tokens.pop_back();
        script.never_ends = true;
        return script;
    }
    static Script fails(const std::string& text, const std::string& error,
                        ErrorKind kind = ErrorKind::kUnavailable) {
        return {.tokens = ids(text), .finish = FinishReason::kAbort, .error = error,
                .error_kind = kind};
    }
    static const char* message(const Json& body) {
        return body["error"]["message"].as_string().c_str();
    }
};

TEST_F(FrontendTest, ErrorsHaveBothFormats) {
    start([](const Request&) { return says("x"); });
    const auto reply = post("/v1/chat/completions", chat_body(R"(,"top_p":2)"));
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.body,
              R"({"error":{"message":"top_p must be in (0, 1], got 2",)"
              R"("type":"invalid_request_error","param":"top_p","code":null},"object":"error",)"
              R"("message":"top_p must be in (0, 1], got 2","type":"BadRequestError",)"
              R"("param":"top_p","code":400})");
}

TEST_F(FrontendTest, WhatIsNotARequestIsRefused) {
    start([](const Request&) { return says("x"); });
    auto reply = post("/v1/chat/completions", "{\"messages\": oops}");
    EXPECT_EQ(reply.status, 400);
    EXPECT_THAT(message(json(reply)), HasSubstr("byte 13"));
    reply = post("/v1/chat/completions", "[1]");
    EXPECT_THAT(message(json(reply)), HasSubstr("must be a JSON object, got array"));
    reply = post("/v1/chat/completions", "");
    EXPECT_EQ(reply.status, 400);

    client().send("POST /v1/completions HTTP/1.1\r\nContent-Type: text/plain\r\n"
                  "Content-Length: 2\r\n\r\n{}");
    reply = client().reply();
    EXPECT_EQ(reply.status, 415);
    EXPECT_THAT(message(json(reply)), HasSubstr("application/json, got text/plain"));
    client().send("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json; charset=utf-8"
                  "\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"x\"}");
    EXPECT_EQ(client().reply().status, 200);

    reply = get("/v1/chat/completion");
    EXPECT_EQ(reply.status, 404);
    EXPECT_THAT(message(json(reply)), HasSubstr("did you mean /v1/chat/completions?"));
    reply = get("/v1/chat/completions?x=1");
    EXPECT_EQ(reply.status, 405);
    EXPECT_EQ(reply.header("Allow"), "POST, OPTIONS");
    reply = post("/v1/models", "{}");
    EXPECT_EQ(reply.status, 405);
    EXPECT_EQ(reply.header("Allow"), "GET, HEAD, OPTIONS");
    client().send("OPTIONS /v1/models HTTP/1.1\r\n\r\n");
    EXPECT_EQ(client().reply().header("Allow"), "GET, HEAD, OPTIONS");
    client().send("HEAD /v1/models HTTP/1.1\r\n\r\n");
    EXPECT_EQ(client().reply(true).status, 200);
}

TEST_F(FrontendTest, LengthsAreChecked) {
    FrontendOptions options;
    options.context_length = 20;
    start([](const Request&) { return says("x"); }, options);
    const auto refusal = [&](int num_prompt, const std::string& more) {
        Json prompt = Json::array();
        for (int i = 0; i < num_prompt; ++i) prompt.push_back(5);
        const auto reply = post("/v1/completions", R"({"prompt":)" + prompt.dump() + more + "}");
        return reply.status == 200 ? std::string() : std::string(message(json(reply)));
    };
    EXPECT_EQ(refusal(21, ""),
              "The input (21 tokens) is longer than the model's context length (20 tokens).");
    EXPECT_EQ(refusal(20, ""),
              "Requested token count exceeds the model's maximum context length of 20 tokens. You "
              "requested a total of 21 tokens: 20 from the input and 1 for the completion.");
    EXPECT_EQ(refusal(10, R"(,"max_tokens":11)"),
              "Requested token count exceeds the model's maximum context length of 20 tokens. You "
              "requested a total of 21 tokens: 10 from the input and 11 for the completion.");
    EXPECT_EQ(refusal(10, R"(,"max_tokens":10)"), "");
    EXPECT_EQ(refusal(10, ""), "");
    EXPECT_EQ(engine_->requests().back().sampling.max_new_tokens, 10);  // not 16
    EXPECT_THAT(refusal(10, R"(,"min_tokens":11)"), HasSubstr("min_tokens must be at most 10"));
}

TEST_F(FrontendTest, ErrorsBeforeTheFirstTokenAreHttpErrors) {
    start([](const Request&) { return fails("", "node-1 (decode) has died"); });
    for (const char* more : {"", R"(,"stream":true)"}) {
        const auto reply = post("/v1/chat/completions", chat_body(more));
        EXPECT_EQ(reply.status, 503);
        EXPECT_STREQ(message(json(reply)), "node-1 (decode) has died");
    }
    start([](const Request&) { return fails("", "too long", ErrorKind::kBadRequest); });
    for (const char* more : {"", R"(,"stream":true)"}) {
        EXPECT_EQ(post("/v1/chat/completions", chat_body(more)).status, 400);
    }
    start([](const Request&) { return Script{.refusal = "node-0 is down"}; });
    const auto reply = post("/v1/chat/completions", chat_body());
    EXPECT_EQ(reply.status, 503);
    EXPECT_STREQ(message(json(reply)), "node-0 is down");
}

TEST_F(FrontendTest, ErrorsAfterTheFirstTokenAreEvents) {
    start([](const Request& request) {
        return request.sampling.choice == 0 ? endless("some text")
                                            : fails("more text", "node-1 has died");
    });
    const auto reply = post("/v1/chat/completions", chat_body(R"(,"stream":true,"n":2)"));
    EXPECT_EQ(reply.status, 200);
    const auto all = events(reply.body);
    EXPECT_EQ(all.back()["error"]["message"], Json("node-1 has died"));
    EXPECT_EQ(all.back()["object"], Json("error"));
    EXPECT_TRUE(engine_->wait_aborted(engine_->requests()[0].id));
    // Not streamed, nothing has been sent: the same failure is an HTTP error.
    EXPECT_EQ(post("/v1/chat/completions", chat_body(R"(,"n":2)")).status, 503);
}

TEST_F(FrontendTest, AClientThatGoesAwayIsAborted) {
    start([](const Request&) { return endless("text"); });
    for (const char* more : {R"(,"n":2)", R"(,"n":2,"stream":true)"}) {
        const size_t before = engine_->requests().size();
        http::TestClient leaver(frontend_->port());
        leaver.send(http::TestClient::post_text("/v1/chat/completions", chat_body(more)));
        ASSERT_TRUE(engine_->wait_requests(before + 2));
        leaver.close();
        EXPECT_TRUE(engine_->wait_aborted(engine_->requests()[before].id)) << more;
        EXPECT_TRUE(engine_->wait_aborted(engine_->requests()[before + 1].id)) << more;
    }
    EXPECT_THAT(get("/metrics").body,
                HasSubstr("sglang:num_aborted_requests_total{model_name=\"demo\"} 4"));
}

TEST_F(FrontendTest, AbortRequestEndsACallByItsName) {
    start([](const Request&) { return endless("text"); });
    for (const char* how : {R"({"rid":"mine"})", R"({"abort_all":true})"}) {
        http::TestClient waiting(frontend_->port());
        waiting.send(http::TestClient::post_text("/v1/chat/completions",
                                                 chat_body(R"(,"rid":"mine")")));
        ASSERT_TRUE(engine_->wait_requests(1));
        EXPECT_EQ(post("/abort_request", R"({"rid":"other"})").status, 200);
        // Its token may not have come yet: the call then ends without text.
        EXPECT_EQ(post("/abort_request", how).status, 200);
        const Json body = json(waiting.reply());
        EXPECT_EQ(choice(body)["finish_reason"], Json("abort")) << how;
        start([](const Request&) { return endless("text"); });
    }
    EXPECT_EQ(post("/abort_request", R"({"rid":5})").status, 400);
}

TEST_F(FrontendTest, TheQueueHasALimit) {
    FrontendOptions options;
    options.max_running_requests = 2;
    options.max_queued_requests = 1;
    start([](const Request&) { return endless("text"); }, options);
    http::TestClient first(frontend_->port());
    first.send(http::TestClient::post_text("/v1/chat/completions", chat_body(R"(,"n":2)")));
    ASSERT_TRUE(engine_->wait_requests(2));
    const auto reply = post("/v1/chat/completions", chat_body(R"(,"n":2)"));
    EXPECT_EQ(reply.status, 503);
    EXPECT_STREQ(message(json(reply)),
                 "The request queue is full: 2 requests are in flight and this one needs 2, at most "
                 "3 may be (max_running_requests 2 + max_queued_requests 1)");
}

TEST_F(FrontendTest, AbortReachesEveryChoiceThatStillRuns) {
    start([](const Request& r) { return r.sampling.choice == 0 ? says("x") : endless("text"); });
    http::TestClient waiting(frontend_->port());
    waiting.send(http::TestClient::post_text("/chat/completions", chat_body(R"(,"n":3,"rid":"r")")));
    ASSERT_TRUE(engine_->wait_requests(3));
    EXPECT_EQ(post("/abort_request", R"({"rid":"r"})").status, 200);
    for (int i : {1, 2}) EXPECT_TRUE(engine_->wait_aborted(engine_->requests()[i].id));
    EXPECT_EQ(waiting.reply().status, 200);
}

TEST_F(FrontendTest, ReplicasWithTheLeastWorkAreChosen) {
    start([](const Request&) { return endless("text"); });
    engine_->set_state(FakeEngine::healthy_state(2, 3));
    std::vector<std::unique_ptr<http::TestClient>> clients;
    for (int i = 0; i < 6; ++i) {
        clients.push_back(std::make_unique<http::TestClient>(frontend_->port()));
        clients.back()->send(http::TestClient::post_text("/v1/chat/completions", chat_body()));
        ASSERT_TRUE(engine_->wait_requests(i + 1));
    }
    std::map<int, int> prefill, decode;
    for (const Request& request : engine_->requests()) {
        ++prefill[request.prefill_replica];
        ++decode[request.decode_replica];
    }
    EXPECT_EQ(prefill, (std::map<int, int>{{0, 3}, {1, 3}}));
    EXPECT_EQ(decode, (std::map<int, int>{{0, 2}, {1, 2}, {2, 2}}));

    auto state = FakeEngine::healthy_state(2, 3);
    state.decode[0].live = false;
    engine_->set_state(state);
    clients[1].reset();  // its replicas, 1 and 1, are the least busy now
    ASSERT_TRUE(engine_->wait_aborted(engine_->requests()[1].id));
    clients.push_back(std::make_unique<http::TestClient>(frontend_->port()));
    clients.back()->send(http::TestClient::post_text("/v1/chat/completions", chat_body()));
    ASSERT_TRUE(engine_->wait_requests(7));
    EXPECT_EQ(engine_->requests()[6].decode_replica, 1);
}

TEST_F(FrontendTest, HealthFollowsTheEngine) {
    FrontendOptions options;
    options.api_key = "key";  // not needed for health
    start([](const Request&) { return says("x"); }, options);
    EXPECT_EQ(get("/health").status, 200);
    EXPECT_EQ(get("/health_generate").status, 200);
    EXPECT_EQ(engine_->requests().size(), 1u);
    EXPECT_EQ(engine_->requests()[0].sampling.max_new_tokens, 1);
    auto state = FakeEngine::healthy_state();
    state.decode[0].live = false;
    engine_->set_state(state);
    const auto reply = get("/health");
    EXPECT_EQ(reply.status, 503);
    EXPECT_THAT(reply.body, HasSubstr("decode"));
    EXPECT_EQ(get("/health_generate").status, 503);
}

TEST_F(FrontendTest, HealthGenerateHasALimit) {
    FrontendOptions options;
    options.health_generate_limit_s = 0.05;
    start([](const Request&) { return endless(""); }, options);
    const auto reply = get("/health_generate");
    EXPECT_EQ(reply.status, 503);
    EXPECT_THAT(reply.body, HasSubstr("0.05 s"));
    EXPECT_TRUE(engine_->wait_aborted(engine_->requests()[0].id));
}

TEST_F(FrontendTest, KeysOpenTheRoutes) {
    FrontendOptions options;
    options.api_key = "user-key";
    options.admin_api_key = "admin-key";
    start([](const Request&) { return says("x"); }, options);
    const auto reply = get("/v1/models");
    EXPECT_EQ(reply.status, 401);
    EXPECT_EQ(json(reply)["error"]["code"], Json("invalid_api_key"));
    const struct {
        const char* header;
        int normal, admin;
    } kCases[] = {
        {"", 401, 401},
        {"Authorization: Bearer wrong-ky\r\n", 401, 401},
        {"Authorization: user-key\r\n", 401, 401},
        {"Authorization: Bearer user-key\r\n", 200, 401},
        {"authorization: bearer user-key\r\n", 200, 401},
        {"x-api-key: user-key\r\n", 200, 401},
        {"X-API-Key: admin-key\r\n", 200, 200},
    };
    for (const auto& test : kCases) {
        EXPECT_EQ(get("/v1/models", test.header).status, test.normal) << test.header;
        EXPECT_EQ(post("/abort_request", "{}", test.header).status, test.admin) << test.header;
    }
    EXPECT_EQ(get("/metrics").status, 200);
}

TEST_F(FrontendTest, TellsOfItself) {
    FrontendOptions options;
    options.model_info.set("model_path", "/m").set("is_generation", true);
    start([](const Request&) { return says("x"); }, options);
    Json body = json(get("/v1/models"));
    EXPECT_EQ(body["data"].as_array()[0]["id"], Json("demo"));
    EXPECT_EQ(body["data"].as_array()[0]["max_model_len"], Json(200));
    EXPECT_EQ(json(get("/v1/models/demo"))["object"], Json("model"));
    const auto missing = get("/models/deepseek-ai%2Fother");
    EXPECT_EQ(missing.status, 404);
    EXPECT_EQ(json(missing)["error"]["code"], Json("model_not_found"));
    EXPECT_THAT(message(json(missing)), HasSubstr("deepseek-ai/other"));
    EXPECT_EQ(json(get("/get_model_info"))["model_path"], Json("/m"));
    EXPECT_EQ(get("/ping").status, 200);

    body = json(get("/server_info"));
    EXPECT_EQ(body["page_size"], Json(64));
    ASSERT_EQ(body["internal_states"].as_array().size(), 2u);
    EXPECT_EQ(body["internal_states"].as_array()[1]["last_gen_throughput"], Json(12.5));
    EXPECT_EQ(body["ae_separation"]["decode_replicas"].as_array()[0]["live"], Json(true));
    body = json(get("/v1/loads"));
    EXPECT_EQ(body["loads"].as_array()[1]["dp_rank"], Json(1));
    EXPECT_EQ(body["loads"].as_array()[1]["num_running_reqs"], Json(4));
}

TEST_F(FrontendTest, TokenizesBothWays) {
    start([](const Request&) { return says("x"); });
    Json body = json(post("/tokenize", R"({"prompt":"Hello there"})"));
    EXPECT_EQ(body["tokens"].as_array()[0], Json(0));  // the BOS
    EXPECT_EQ(body["count"], Json(static_cast<int64_t>(body["tokens"].as_array().size())));
    body = json(post("/v1/tokenize", R"({"prompt":"Hello there","add_special_tokens":false})"));
    EXPECT_NE(body["tokens"].as_array()[0], Json(0));
    const std::string tokens = body["tokens"].dump();
    EXPECT_EQ(json(post("/detokenize", R"({"tokens":)" + tokens + "}"))["text"],
              Json("Hello there"));
    body = json(post("/tokenize", R"({"messages":[{"role":"user","content":"Hello"}]})"));
    EXPECT_EQ(body["count"], Json(5));
    EXPECT_EQ(post("/tokenize", "{}").status, 400);
    EXPECT_EQ(post("/tokenize", R"({"prompt":"x","add_special_tokens":1})").status, 400);
    EXPECT_EQ(post("/detokenize", R"({"tokens":[8192]})").status, 400);
    EXPECT_EQ(post("/detokenize", R"({"tokens":[1],"skip_special_tokens":1})").status, 400);
}

TEST_F(FrontendTest, MetricsAreCounted) {
    start([](const Request&) {
        Script script = says("a b c");
        script.cached_tokens = 2;
        return script;
    });
    const std::string before = get("/metrics").body;
    EXPECT_THAT(before, HasSubstr("sglang:generation_tokens_total{model_name=\"demo\"} 0"));
    EXPECT_THAT(before, HasSubstr("sglang:num_running_reqs{"));  // the engine's
    post("/v1/completions", R"({"prompt":[5,6,7],"n":2})");
    get("/nonsense");
    const std::string text = get("/metrics").body;
    const int num_output = static_cast<int>(ids("a b c").size()) + 1;
    for (const std::string& line : {
             std::string("sglang:prompt_tokens_total{model_name=\"demo\"} 3"),
             fmt::format("sglang:generation_tokens_total{{model_name=\"demo\"}} {}",
                         2 * num_output),
             std::string("sglang:num_requests_total{model_name=\"demo\"} 2"),
             std::string("sglang:time_to_first_token_seconds_count{model_name=\"demo\"} 2"),
             fmt::format("sglang:inter_token_latency_seconds_count{{model_name=\"demo\"}} {}",
                         2 * (num_output - 1)),
             std::string("sglang:e2e_request_latency_seconds_count{model_name=\"demo\"} 2"),
             std::string("sglang:http_requests_total{endpoint=\"/v1/completions\","
                         "method=\"POST\"} 1"),
             std::string("sglang:http_responses_total{endpoint=\"other\",status_code=\"404\","
                         "method=\"other\"} 1"),
         }) {
        EXPECT_THAT(text, HasSubstr(line + "\n"));
    }
    // Each family stands in the text once.
    const std::string type = "# TYPE process_open_fds gauge";
    EXPECT_EQ(text.find(type), text.rfind(type));
    FrontendOptions options;
    options.enable_metrics = false;
    start([](const Request&) { return says("x"); }, options);
    EXPECT_EQ(get("/metrics").status, 404);
}

TEST_F(FrontendTest, StopFinishesWhatRunsAndRefusesWhatIsNew) {
    start([](const Request&) { return endless("slow text"); });
    http::TestClient running(frontend_->port());
    running.send(http::TestClient::post_text("/v1/chat/completions", chat_body()));
    ASSERT_TRUE(engine_->wait_requests(1));
    const int port = frontend_->port();
    std::thread stopper([&] { frontend_->stop(10); });
    while (get("/health").status == 200) {
    }
    EXPECT_EQ(post("/v1/chat/completions", chat_body()).status, 503);
    engine_->end_all();
    const Json body = json(running.reply());
    stopper.join();
    EXPECT_EQ(choice(body)["message"]["content"], Json("slow text"));
    EXPECT_FALSE(http::TestClient(port).connected());
}

TEST_F(FrontendTest, StopHasALimit) {
    start([](const Request&) { return endless("text"); });
    client().send(http::TestClient::post_text("/v1/chat/completions", chat_body()));
    ASSERT_TRUE(engine_->wait_requests(1));
    frontend_->stop(0.05);
    EXPECT_TRUE(engine_->wait_aborted(engine_->requests()[0].id));
    EXPECT_EQ(choice(json(client().reply()))["finish_reason"], Json("abort"));
    EXPECT_TRUE(client().receive_end());
}

}  // namespace
}  // namespace aerie::frontend
