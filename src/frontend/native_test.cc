// SGLang's native API.
#include <gmock/gmock.h>

#include <set>

#include "frontend/testing/frontend_fixture.h"

namespace aerie::frontend {
namespace {

using testing::HasSubstr;

class NativeTest : public FrontendFixture {
  protected:
    std::string refusal(const std::string& body) {
        const auto reply = post("/generate", body);
        EXPECT_EQ(reply.status, 400) << body;
        return json(reply)["error"]["message"].as_string();
    }
};

TEST_F(NativeTest, APromptIsAnswered) {
    start([](const Request&) {
        Script script = says("Hi there");
        script.cached_tokens = 2;
        return script;
    });
    const auto reply = post("/generate", R"({"text":"Hello","rid":"r","sampling_params":{
        "max_new_tokens":20,"min_new_tokens":1,"temperature":0.5,"sampling_seed":7,
        "frequency_penalty":0.5},"stream":false,"lora_path":null,"return_logprob":false})");
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json body = json(reply);
    EXPECT_EQ(body["text"], Json("Hi there"));
    EXPECT_EQ(body["output_ids"].as_array().size(), ids("Hi there").size() + 1);
    const Json& meta = body["meta_info"];
    const Request request = engine_->requests().at(0);
    EXPECT_EQ(meta["id"], Json("r"));
    EXPECT_EQ(meta["finish_reason"].dump(), R"({"type":"stop","matched":1})");
    EXPECT_EQ(meta["prompt_tokens"], Json(static_cast<int64_t>(request.prompt.size())));
    EXPECT_EQ(meta["completion_tokens"], Json(static_cast<int64_t>(ids("Hi there").size() + 1)));
    EXPECT_EQ(meta["cached_tokens"], Json(2));
    EXPECT_TRUE(meta["e2e_latency"].is_double());
    EXPECT_EQ(meta.find("output_token_logprobs"), nullptr);
    EXPECT_EQ(request.sampling.max_new_tokens, 20);
    EXPECT_EQ(request.sampling.min_new_tokens, 1);
    EXPECT_EQ(request.sampling.seed, 7u);
    EXPECT_EQ(request.sampling.frequency_penalty, 0.5);
}

// SGLang's clients read them to see how much drafts gain.
TEST_F(NativeTest, TellsTheReplicaAndWhatDraftsGave) {
    Script script = says("one two three four");
    script.step = 2;
    start([&](const Request&) { return script; });
    const std::string body = R"({"text":"x"})";
    EXPECT_EQ(json(post("/generate", body))["meta_info"].find("spec_verify_ct"), nullptr);
    FrontendOptions options;
    options.drafts = true;
    start([&](const Request&) { return script; }, options);
    engine_->set_state(FakeEngine::healthy_state(1, 2));
    const auto num_tokens = static_cast<int64_t>(script.tokens.size());
    const int64_t num_steps = (num_tokens + 1) / 2 - 1;
    std::set<int64_t> dp_ranks;
    for (const char* more : {"}", R"(,"stream":true})", "}"}) {
        const auto reply = post("/generate", body.substr(0, body.size() - 1) + more);
        const bool streams = more[0] == ',';
        const Json meta = (streams ? events(reply.body).back() : json(reply))["meta_info"];
        EXPECT_EQ(meta["spec_verify_ct"], Json(num_steps));
        EXPECT_EQ(meta["spec_accept_length"],
                  Json(static_cast<double>(num_tokens) / static_cast<double>(num_steps)));
        dp_ranks.insert(meta["dp_rank"].as_int());
    }
    EXPECT_EQ(dp_ranks, (std::set<int64_t>{0, 1}));
}

TEST_F(NativeTest, DefaultsAreItsOwn) {
    FrontendOptions options;
    options.defaults = {.temperature = 0.6, .top_p = 0.9};
    start([](const Request&) { return says("x"); }, options);
    EXPECT_EQ(post("/generate", R"({"input_ids":[5,6]})").status, 200);
    const SamplingParams sampling = engine_->requests().at(0).sampling;
    EXPECT_EQ(sampling.temperature, 1);
    EXPECT_EQ(sampling.top_p, 1);
    EXPECT_EQ(sampling.max_new_tokens, 128);
}

TEST_F(NativeTest, ABatchAndSeveralChoicesAreLists) {
    start([](const Request& request) {
        return says(std::to_string(request.prompt.back()) + "-" +
                    std::to_string(request.sampling.choice));
    });
    Json body = json(post("/generate", R"({"input_ids":[[5,6],[7]],"sampling_params":{"n":2}})"));
    ASSERT_EQ(body.as_array().size(), 4u);
    EXPECT_EQ(body.as_array()[1]["text"], Json("6-1"));
    EXPECT_EQ(body.as_array()[2]["text"], Json("7-0"));
    EXPECT_EQ(body.as_array()[2]["meta_info"]["prompt_tokens"], Json(1));
    EXPECT_EQ(json(post("/generate", R"({"input_ids":[[5]]})")).as_array().size(), 1u);
}

TEST_F(NativeTest, AStreamHoldsAllSoFar) {
    Script script = says("one two 🦅 three");
    for (size_t i = 0; i < script.tokens.size(); ++i) {
        script.logprobs.push_back({-0.5f, {{5, -0.25f}}, {-7}});
    }
    start([&](const Request&) { return script; });
    const std::string body = R"({"text":"x","return_logprob":true,"top_logprobs_num":1,
        "token_ids_logprob":[9])";
    Json whole = json(post("/generate", body + "}"));
    EXPECT_EQ(engine_->requests().back().sampling.logprob_ids, std::vector<int32_t>{9});
    const Json& meta = whole["meta_info"];
    EXPECT_EQ(meta["output_token_logprobs"].as_array()[0].dump(),
              Json::parse("[-0.5," + std::to_string(script.tokens[0]) + ",\"one\"]")->dump());
    EXPECT_EQ(meta["output_top_logprobs"].as_array()[0].as_array()[0].as_array()[1], Json(5));
    EXPECT_EQ(meta["output_token_ids_logprobs"].as_array()[0].as_array()[0].as_array()[1], Json(9));
    for (const int step : {1, 3, 100}) {
        script.step = step;
        const auto all = events(post("/generate", body + R"(,"stream":true})").body);
        std::string before;
        for (const Json& event : all) {
            EXPECT_TRUE(event["text"].as_string().starts_with(before));
            before = event["text"].as_string();
        }
        Json last = all.back();
        EXPECT_EQ(last["text"], whole["text"]);
        EXPECT_EQ(last["output_ids"], whole["output_ids"]);
        for (const char* name : {"finish_reason", "completion_tokens", "output_token_logprobs",
                                 "output_top_logprobs", "output_token_ids_logprobs"}) {
            EXPECT_EQ(last["meta_info"][name], meta[name]) << name;
        }
    }
}

TEST_F(NativeTest, RefusalsNameItsOwnFields) {
    start([](const Request&) { return says("x"); });
    EXPECT_THAT(refusal("{}"), HasSubstr("both are missing"));
    EXPECT_THAT(refusal(R"({"text":"a","input_ids":[1]})"), HasSubstr("only one may be"));
    EXPECT_THAT(refusal(R"({"text":[5]})"),
                HasSubstr("text must be a string or a list of strings"));
    EXPECT_THAT(refusal(R"({"input_ids":[5,99999]})"),
                HasSubstr("input_ids[1] must be a token id"));
    EXPECT_THAT(refusal(R"({"text":"a","sampling_params":{"max_new_tokens":0}})"),
                HasSubstr("max_new_tokens must be"));
    EXPECT_THAT(refusal(R"({"text":"a","sampling_params":{"top_p":0}})"),
                HasSubstr("top_p must be"));
    EXPECT_THAT(refusal(R"({"text":"a","sampling_params":{"regex":"(a"}})"),
                HasSubstr("regex is refused: "));
    EXPECT_THAT(refusal(R"({"text":"a","sampling_params":{"regex":"a","json_schema":"{}"}})"),
                HasSubstr("only one of"));
    EXPECT_THAT(refusal(R"({"text":"a","sampling_params":[]})"),
                HasSubstr("sampling_params must be"));
    EXPECT_THAT(refusal(R"({"text":"a","return_logprob":true,"logprob_start_len":-2})"),
                HasSubstr("logprob_start_len must be a whole number from -1"));
    EXPECT_THAT(refusal(R"({"text":"a","return_logprob":true,"top_logprobs_num":21})"),
                HasSubstr("from 0 to 20, got 21"));
    EXPECT_THAT(refusal(R"({"text":"a","image_data":"x"})"), HasSubstr("this model reads text"));
}

}  // namespace
}  // namespace aerie::frontend
