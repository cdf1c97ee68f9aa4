// What carries a grammar obeys it, and the way in which it runs changes neither its tokens nor a bit of
// its logits, nor those of its neighbours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "golden.h"
#include "grammar/matcher.h"
#include "in_process_cluster.h"
#include "parse/tool_grammar.h"

namespace aerie::cluster_tests {
namespace {

using Kind = Grammar::Kind;
using testing::HasSubstr;

constexpr const char* kSchema = R"({"type":"object","properties":{"name":{"enum":["ada","bob"]},
    "age":{"type":"integer"},"tags":{"type":"array","items":{"enum":["x","y"]},"maxItems":3}},
    "required":["name","age","tags"],"additionalProperties":false})";

const Tokenizer& tokenizer() {
    static const auto* loaded =
        new std::unique_ptr<Tokenizer>(*Tokenizer::load(AERIE_SOURCE_DIR "/models/demo"));
    return **loaded;
}

std::string tool_calls() {
    auto tools = Json::parse(R"([{"function":{"name":"f","parameters":{"type":"object",
        "properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}}}])");
    return parse::tool_call_grammar(parse::ToolFormat::kDeepSeekV31, tools->as_array(), false);
}

// Greedy and drawn, with and without a grammar.
std::vector<Request> requests() {
    const std::vector<Grammar> grammars = {
        {Kind::kJsonSchema, kSchema, false},
        {},
        {Kind::kRegex, "[a-z]{3,12}( [a-z]{3,12}){30,40}", false},
        {Kind::kEbnf, "root ::= [0-9]{1,3} (\" + \" [0-9]{1,3}){2,5}", false},
        {Kind::kToolCalls, tool_calls(), false},
    };
    const auto goldens = read_goldens("golden_greedy.json");
    std::vector<Request> all;
    for (size_t i = 0; i < 2 * grammars.size(); ++i) {
        Request request = greedy(goldens[i].prompt, 60, true);
        request.sampling.grammar = grammars[i % grammars.size()];
        // These and the regex have 60 tokens, so that two of them never fit a pool of 128 tokens.
        request.sampling.ignore_eos = request.sampling.grammar.kind == Kind::kNone;
        if (i >= grammars.size()) {
            request.sampling.temperature = 1;
            request.sampling.seed = i;
        }
        all.push_back(std::move(request));
    }
    return all;
}

void expect_obeyed(grammar::Compiler& compiler, const Request& request, const Outcome& outcome) {
    EXPECT_NE(outcome.finish, FinishReason::kAbort) << outcome.error;
    const Grammar& grammar = request.sampling.grammar;
    if (grammar.kind == Kind::kNone) return;
    const std::string text = tokenizer().decode(outcome.tokens, false);
    auto matcher = grammar::Matcher::create(compiler.compile(grammar).compiled,
                                            grammar.after_reasoning);
    ASSERT_TRUE(matcher.ok());
    for (const int32_t token : outcome.tokens) {
        ASSERT_TRUE((*matcher)->accept(token).ok()) << text;
    }
    EXPECT_EQ((*matcher)->is_terminated(), outcome.finish == FinishReason::kStop) << text;
}

std::string settings(const std::string& more = "") {
    return R"({"page_size": 16, "disable_radix_cache": true)" + more + "}";
}

TEST(GrammarTest, EveryWayOfRunningObeysItWithTheSameBits) {
    const auto all = requests();
    grammar::Compiler compiler(tokenizer(), {.eos_ids = {*tokenizer().eos_id()}});
    std::vector<Outcome> reference;
    {
        Cluster cluster({.toml = "[ae_separation]\nenabled = false\n", .settings = settings()});
        reference = cluster.run(all);
        cluster.expect_idle();
        EXPECT_EQ(cluster.run_alone(all), reference) << "alone";
        EXPECT_GT(cluster.metric("sglang:num_grammar_cache_hit_total"), 0);
    }
    int num_stopped = 0;
    for (size_t i = 0; i < all.size(); ++i) {
        expect_obeyed(compiler, all[i], reference[i]);
        const bool has_grammar = all[i].sampling.grammar.kind != Kind::kNone;
        num_stopped += has_grammar && reference[i].finish == FinishReason::kStop;
    }
    EXPECT_GT(num_stopped, 2) << "hardly an answer came to its grammar's end";
    {
        Cluster cluster({.toml = three_nodes(), .settings = settings()});
        EXPECT_EQ(cluster.run(all), reference) << "separated";
        cluster.expect_idle();
    }
    {
        Cluster cluster({.toml = three_nodes(),
                         .settings = settings(R"(, "max_running_requests": 16, "enable_mtp": true,
                                                  "mtp_num_steps": 2)")});
        EXPECT_EQ(cluster.run(all), reference) << "with drafts";
        cluster.expect_idle();
    }
    Cluster cluster(
        {.toml = "[ae_separation]\nenabled = false\n",
         .settings = settings(R"(, "max_total_tokens": 128, "schedule_conservativeness": 0.02)")});
    // The first run may wait for its grammars one by one, and so never fill the pool.
    EXPECT_EQ(cluster.run(all), reference) << "one by one";
    EXPECT_EQ(cluster.run(all), reference) << "retracted";
    EXPECT_GT(cluster.metric("sglang:num_retracted_requests_total"), 0);
}

// Back to prefill with what it has said, and to decode again: the grammar is where it was.
TEST(GrammarTest, WhatDecodeRetractsGoesOnInItsGrammar) {
    std::vector<Request> all;
    const auto goldens = read_goldens("golden_greedy.json");
    for (uint64_t seed = 0; seed < 3; ++seed) {
        Request request = greedy(goldens[seed].prompt, 700, true);
        request.sampling.temperature = 0.8;
        request.sampling.seed = seed;
        request.sampling.grammar = {Kind::kRegex, "([a-z]{2,9} [0-9]{2} )*", false};
        request.sampling.min_new_tokens = 700;
        all.push_back(std::move(request));
    }
    grammar::Compiler compiler(tokenizer(), {.eos_ids = {*tokenizer().eos_id()}});
    std::vector<Outcome> outcomes[2];
    for (const bool small : {false, true}) {
        Cluster cluster(
            {.toml = three_nodes(),
             .settings = small ? R"({"disable_radix_cache": true, "max_total_tokens": 1792})"
                               : R"({"disable_radix_cache": true})"});
        outcomes[small] = cluster.run(all);
        EXPECT_EQ(cluster.metric("sglang:num_retracted_requests_total") > 0, small);
        cluster.expect_idle();
    }
    EXPECT_EQ(outcomes[0], outcomes[1]);
    for (size_t i = 0; i < all.size(); ++i) expect_obeyed(compiler, all[i], outcomes[1][i]);
}

TEST(GrammarTest, BehindTheReasoning) {
    std::vector<Request> all = {greedy(read_goldens("golden_greedy.json")[0].prompt, 40, true)};
    all[0].sampling.grammar = {Kind::kJsonSchema, kSchema, true};
    // Never sampled by itself here: with the bias </think> comes first.
    all[0].sampling.logit_bias = {{*tokenizer().token_id("</think>"), 100}};
    grammar::Compiler compiler(tokenizer(), {.eos_ids = {*tokenizer().eos_id()}});
    Cluster cluster({.toml = three_nodes(), .settings = settings()});
    const auto outcomes = cluster.run(all);
    expect_obeyed(compiler, all[0], outcomes[0]);
    EXPECT_THAT(tokenizer().decode(outcomes[0].tokens, false), HasSubstr("</think>{"));
}

// The frontend refuses such grammars; a leader must live with them.
TEST(GrammarTest, ABadGrammarEndsItsRequestAlone) {
    const auto prompt = read_goldens("golden_greedy.json")[0].prompt;
    std::vector<Request> all(3, greedy(prompt, 8, true));
    all[1].sampling.grammar = {Kind::kRegex, "(", false};
    for (const bool separated : {false, true}) {
        Cluster cluster({.toml = separated ? three_nodes() : "[ae_separation]\nenabled = false\n",
                         .settings = settings()});
        const auto outcomes = cluster.run(all);
        EXPECT_EQ(outcomes[1].finish, FinishReason::kAbort);
        EXPECT_THAT(outcomes[1].error, HasSubstr("grammar"));
        EXPECT_EQ(outcomes[0].tokens.size(), 8u);
        EXPECT_EQ(outcomes[0], outcomes[2]);
        cluster.expect_idle();
    }
}

}  // namespace
}  // namespace aerie::cluster_tests
