// A frontend over the demo model's tokenizer and template and a FakeEngine, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "frontend/testing/fake_engine.h"
#include "frontend/frontend.h"
#include "http/testing/test_client.h"
#include "template/chat_template.h"

namespace aerie::frontend {

class FrontendFixture : public testing::Test {
  protected:
    static const Tokenizer& tokenizer() {
        static const auto* loaded = new std::unique_ptr<Tokenizer>(
            *Tokenizer::load(std::string(AERIE_SOURCE_DIR) + "/models/demo"));
        return **loaded;
    }
    static std::vector<int32_t> ids(const std::string& text) { return tokenizer().encode(text); }
    static int32_t eos() { return *tokenizer().eos_id(); }
    // The text's tokens and the end of the sentence.
    static Script says(const std::string& text) {
        Script script{.tokens = ids(text), .finish = FinishReason::kStop, .matched_token = eos()};
        script.tokens.push_back(eos());
        return script;
    }

    void start(FakeEngine::MakeScript make_script, FrontendOptions options = {}) {
        frontend_.reset();
        auto chat = ChatTemplate::compile(
            *find_chat_template(std::string(AERIE_SOURCE_DIR) + "/models/demo"));
        ASSERT_TRUE(chat.ok()) << chat.message();
        engine_ = std::make_unique<FakeEngine>(std::move(make_script));
        registry_ = std::make_unique<metrics::Registry>();
        options.served_model_name = "demo";
        if (options.context_length == 0) options.context_length = 200;
        options.eos_ids = {eos()};
        options.defaults.vocab_size = 8192;
        options.defaults.formats = {parse::ReasoningFormat::kDeepSeekV3,
                                    parse::ToolFormat::kDeepSeekV31};
        options.server_info.set("version", "1.2.3").set("page_size", 64);
        auto started = Frontend::start(
            std::move(options),
            {.tokenizer = tokenizer(),
             .engine = *engine_,
             .registry = *registry_,
             .render_chat = [chat = *chat](const Json& v) { return chat.render(v); }});
        ASSERT_TRUE(started.ok()) << started.message();
        frontend_ = *std::move(started);
        client_ = std::make_unique<http::TestClient>(frontend_->port());
    }
    void TearDown() override { frontend_.reset(); }

    http::TestClient& client() { return *client_; }
    http::TestReply post(const std::string& path, const std::string& body,
                         const std::string& headers = "") {
        return client_->post(path, body, headers);
    }
    http::TestReply get(const std::string& path, const std::string& headers = "") {
        return client_->get(path, headers);
    }
    // A body that must be JSON.
    static Json json(const http::TestReply& reply) {
        auto parsed = Json::parse(reply.body);
        EXPECT_TRUE(parsed.ok()) << reply.status << " " << reply.body;
        return parsed.ok() ? *parsed : Json();
    }
    // The events of a stream that ends with [DONE].
    static std::vector<Json> events(const std::string& body) {
        std::vector<Json> all;
        size_t at = 0;
        bool done = false;
        while (at < body.size()) {
            const size_t end = body.find("\n\n", at);
            if (end == std::string::npos || body.compare(at, 6, "data: ") != 0) break;
            const std::string data = body.substr(at + 6, end - at - 6);
            at = end + 2;
            done = data == "[DONE]";
            if (done) break;
            auto parsed = Json::parse(data);
            EXPECT_TRUE(parsed.ok()) << data;
            if (parsed.ok()) all.push_back(*parsed);
        }
        EXPECT_TRUE(done && at == body.size()) << body;
        return all;
    }
    static Json choice(const Json& reply, size_t index = 0) {
        const Json& choices = reply["choices"];
        return choices.is_array() && index < choices.as_array().size()
                   ? choices.as_array()[index]
                   : Json();
    }
    static std::string chat_body(const std::string& more = "") {
        return R"({"messages":[{"role":"user","content":"Hello"}])" + more + "}";
    }

    // The engine's thread may still end an answer, which counts, when the frontend is gone.
    std::unique_ptr<metrics::Registry> registry_;
    std::unique_ptr<FakeEngine> engine_;
    std::unique_ptr<Frontend> frontend_;
    std::unique_ptr<http::TestClient> client_;
};

}  // namespace aerie::frontend
