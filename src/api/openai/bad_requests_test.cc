// Every kind of bad request: which field is named, and what is said of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "api/openai/request.h"

namespace aerie::openai {
namespace {

constexpr int kVocabSize = 100;

struct Case {
    const char* fields;   // beside a valid messages or prompt
    const char* param;
    const char* message;  // a part of it
};

// Of both endpoints.
const Case kBoth[] = {
    {R"("model":5)", "model", "model must be a string, got 5"},
    {R"("max_tokens":0)", "max_tokens", "max_tokens must be a whole number of at least 1, got 0"},
    {R"("max_tokens":-3)", "max_tokens", "got -3"},
    {R"("max_tokens":1.5)", "max_tokens", "got 1.5"},
    {R"("max_tokens":"16")", "max_tokens", "got \"16\""},
    {R"("max_tokens":true)", "max_tokens", "got true"},
    {R"("max_tokens":3000000000)", "max_tokens", "got 3000000000"},
    {R"("temperature":-0.1)", "temperature",
     "temperature must be a non-negative finite number, got -0.1"},
    {R"("temperature":"hot")", "temperature", "non-negative finite number, got \"hot\""},
    {R"("temperature":[1])", "temperature", "got [1]"},
    {R"("temperature":true)", "temperature", "got true"},
    {R"("top_p":0)", "top_p", "top_p must be in (0, 1], got 0"},
    {R"("top_p":1.01)", "top_p", "top_p must be in (0, 1], got 1.01"},
    {R"("top_p":-1)", "top_p", "got -1"},
    {R"("top_p":"1")", "top_p", "got \"1\""},
    {R"("top_k":0)", "top_k", "top_k must be -1 (all) or at least 1, got 0"},
    {R"("top_k":-2)", "top_k", "got -2"},
    {R"("top_k":2.5)", "top_k", "got 2.5"},
    {R"("min_p":-0.5)", "min_p", "min_p must be in [0, 1], got -0.5"},
    {R"("min_p":1.5)", "min_p", "got 1.5"},
    {R"("n":0)", "n", "n must be a whole number from 1 to 128 (http_max_n), got 0"},
    {R"("n":129)", "n", "got 129"},
    {R"("n":"2")", "n", "got \"2\""},
    {R"("seed":"abc")", "seed", "seed must be a whole number of 64 bits, got \"abc\""},
    {R"("seed":1.5)", "seed", "got 1.5"},
    {R"("seed":99999999999999999999)", "seed", "got 1e+20"},
    {R"("stop":5)", "stop", "a string or a list of strings, none of them empty, got 5"},
    {R"("stop":"")", "stop", "none of them empty, got \"\""},
    {R"("stop":["a",""])", "stop", "none of them empty, got [\"a\",\"\"]"},
    {R"("stop":["a",1])", "stop", "got [\"a\",1]"},
    {R"("stop":{"a":1})", "stop", "got {\"a\":1}"},
    {R"("stop_token_ids":5)", "stop_token_ids", "a list of at most 1024 token ids from 0 to 99, got 5"},
    {R"("stop_token_ids":[100])", "stop_token_ids", "got [100]"},
    {R"("stop_token_ids":[-1])", "stop_token_ids", "got [-1]"},
    {R"("stop_token_ids":["x"])", "stop_token_ids", "got [\"x\"]"},
    {R"("min_tokens":-1)", "min_tokens", "at least 0, got -1"},
    {R"("min_tokens":20,"max_tokens":10)", "min_tokens",
     "min_tokens must be at most max_tokens (10), got 20"},
    {R"("ignore_eos":1)", "ignore_eos", "ignore_eos must be true or false, got 1"},
    {R"("skip_special_tokens":"no")", "skip_special_tokens", "true or false, got \"no\""},
    {R"("no_stop_trim":0)", "no_stop_trim", "true or false, got 0"},
    {R"("stream":"yes")", "stream", "stream must be true or false, got \"yes\""},
    {R"("stream_options":true)", "stream_options", "must be an object, got true"},
    {R"("stream_options":{"include_usage":1})", "stream_options.include_usage", "got 1"},
    {R"("stream_options":{"continuous_usage_stats":"x"})",
     "stream_options.continuous_usage_stats", "got \"x\""},
    {R"("rid":1)", "rid", "rid must be a string, got 1"},
    {R"("user":{})", "user", "user must be a string, got {}"},
    {R"("return_token_ids":2)", "return_token_ids", "true or false, got 2"},
    {R"("logits_hash":"x")", "logits_hash", "true or false"},
    // Known, not built yet.
    {R"("logprobs":"yes")", "logprobs", "logprobs must be"},
    {R"("logit_bias":{"5":101})", "logit_bias", "in [-100, 100], got \"5\": 101"},
    {R"("logit_bias":{"100000":1})", "logit_bias", "got \"100000\": 1"},
    {R"("logit_bias":{"x":1})", "logit_bias", "got \"x\": 1"},
    {R"("logit_bias":{"5":null})", "logit_bias", "got \"5\": null"},
    {R"("logit_bias":[1])", "logit_bias", "an object of at most 1024 (http_max_logit_bias) token ids"},
    {R"("frequency_penalty":2.5)", "frequency_penalty", "in [-2, 2], got 2.5"},
    {R"("presence_penalty":"x")", "presence_penalty", "in [-2, 2], got \"x\""},
    {R"("repetition_penalty":0)", "repetition_penalty", "in (0, 2], got 0"},
    {R"("response_format":"json")", "response_format", "an object, got \"json\""},
    {R"("response_format":{"type":"xml"})", "response_format.type", "structural_tag, got \"xml\""},
    {R"("response_format":{"type":"json_schema","json_schema":{"name":"a"}})",
     "response_format.json_schema.schema", "a JSON schema, got null"},
    {R"("json_schema":5)", "json_schema", "a string of JSON, or an object, got 5"},
    {R"("regex":["a"])", "regex", "regex must be a string"},
    {R"("ebnf":{"root":"x"})", "ebnf", "ebnf must be a string"},
    {R"("structural_tag":[])", "structural_tag", "a string of JSON, or an object"},
    {R"("regex":"a","ebnf":"root ::= \"a\"")", "ebnf", "got regex and ebnf"},
    {R"("response_format":{"type":"json_object"},"regex":"a")", "regex",
     "got response_format and regex"},
    {R"("stop_regex":"a(")", "stop_regex", "a( is no regular expression"},
    {R"("stop_regex":5)", "stop_regex", "a string or a list of strings"},
    {R"("priority":3.5)", "priority", "a whole number of 32 bits, got 3.5"},
    {R"("priority":"high")", "priority", "a whole number of 32 bits, got \"high\""},
    {R"("cache_salt":7)", "cache_salt", "a string, got 7"},
    {R"("lora_path":"x")", "lora_path", "not supported yet"},
    {R"("session_params":{"id":1})", "session_params", "not supported yet"},
    {R"("custom_logit_processor":"x")", "custom_logit_processor", "not supported yet"},
    {R"("return_hidden_states":true)", "return_hidden_states", "not supported yet"},
};

const Case kOfChat[] = {
    {R"("max_completion_tokens":0)", "max_completion_tokens", "at least 1, got 0"},
    {R"("tools":{})", "tools", "tools must be a list of tools, got {}"},
    {R"("tools":[{"type":"function"}])", "tools[0].function", "an object, got null"},
    {R"("tools":[5])", "tools[0]", "an object, got 5"},
    {R"("tools":[{"type":"x"}])", "tools[0].type", "\"function\", got \"x\""},
    {R"("tools":[{"function":{"name":"a\nb"}}])", "tools[0].function.name", "without line breaks"},
    {R"("tools":[{"function":{"name":"f","parameters":1}}])", "tools[0].function.parameters",
     "a JSON schema, got 1"},
    {R"("tools":[{"function":{"name":"f"}}])", "tools", "the setting tool_call_parser"},
    {R"("tool_choice":"any")", "tool_choice", "\"required\" or"},
    {R"("tool_choice":{"type":"function"})", "tool_choice", "\"required\" or"},
    {R"("tool_choice":"required")", "tool_choice", "tools has none"},
    {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice",
     "tools has none"},
    {R"("functions":[{"name":"f"}])", "functions", "not supported yet"},
    {R"("function_call":{"name":"f"})", "function_call", "not supported yet"},
    {R"("top_logprobs":3)", "top_logprobs", "needs logprobs to be true"},
    {R"("logprobs":true,"top_logprobs":21)", "top_logprobs", "from 0 to 20, got 21"},
    {R"("parallel_tool_calls":1)", "parallel_tool_calls", "true or false"},
    {R"("reasoning_effort":"much")", "reasoning_effort", "xhigh or max, got \"much\""},
    {R"("separate_reasoning":1)", "separate_reasoning", "true or false"},
    {R"("stream_reasoning":"x")", "stream_reasoning", "true or false"},
    {R"("chat_template_kwargs":[])", "chat_template_kwargs", "must be an object, got []"},
    {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs.messages",
     "is set by the server"},
    {R"("chat_template_kwargs":{"add_generation_prompt":1})",
     "chat_template_kwargs.add_generation_prompt", "true or false"},
    {R"("add_generation_prompt":"no")", "add_generation_prompt", "true or false, got \"no\""},
    {R"("continue_final_message":1)", "continue_final_message", "true or false, got 1"},
    {R"("continue_final_message":true)", "continue_final_message", "got the role \"user\""},
};

// Whole bodies of chat.
const Case kMessages[] = {
    {R"({})", "messages", "messages must be a list of at least one message, got null"},
    {R"({"messages":[]})", "messages", "at least one message, got []"},
    {R"({"messages":"hi"})", "messages", "got \"hi\""},
    {R"({"messages":["hi"]})", "messages[0]", "messages[0] must be an object, got \"hi\""},
    {R"({"messages":[{"content":"x"}]})", "messages[0].role", "got null"},
    {R"({"messages":[{"role":"user","content":"a"},{"role":"robot","content":"x"}]})",
     "messages[1].role", "system, developer, user, assistant or tool, got \"robot\""},
    {R"({"messages":[{"role":"user","content":5}]})", "messages[0].content",
     "a string, a list of parts or null, got 5"},
    {R"({"messages":[{"role":"user","content":["x"]}]})", "messages[0].content[0]",
     "must be an object, got \"x\""},
    {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})",
     "messages[0].content[0].type", "got \"image_url\""},
    {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
     "messages[0].content[0].text", "a string, got null"},
    {R"({"messages":[{"role":"assistant","tool_calls":5}]})", "messages[0].tool_calls",
     "a list of calls, got 5"},
    {R"({"messages":[{"role":"assistant","tool_calls":[{}]}]})",
     "messages[0].tool_calls[0].function", "an object, got null"},
    {R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":1}}]}]})",
     "messages[0].tool_calls[0].function.name", "a string, got 1"},
    {R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}]})",
     "messages[0].tool_calls[0].function.arguments", "a string or an object, got null"},
};

// Whole bodies of completions.
const Case kPrompts[] = {
    {R"({})", "prompt", "prompt must be a string, a list of strings"},
    {R"({"prompt":[]})", "prompt", "got []"},
    {R"({"prompt":5})", "prompt", "got 5"},
    {R"({"prompt":{"a":1}})", "prompt", "got {\"a\":1}"},
    {R"({"prompt":["a",5]})", "prompt[1]", "a string, as prompt[0] is, got 5"},
    {R"({"prompt":[[1],"a"]})", "prompt[1]", "a list of token ids, as prompt[0] is"},
    {R"({"prompt":[null]})", "prompt[0]", "got null"},
    {R"({"prompt":[1,"a"]})", "prompt[1]", "a token id from 0 to 99, got \"a\""},
    {R"({"prompt":[1,100]})", "prompt[1]", "got 100"},
    {R"({"prompt":[-1]})", "prompt[0]", "got -1"},
    {R"({"prompt":[1.5]})", "prompt[0]", "got 1.5"},
    {R"({"prompt":[[1],[]]})", "prompt[1]", "at least one token id"},
    {R"({"prompt":[[1],[2,200]]})", "prompt[1][1]", "got 200"},
    {R"({"prompt":"a","echo":1})", "echo", "true or false, got 1"},
    {R"({"prompt":"a","suffix":"z"})", "suffix", "not supported yet, got \"z\""},
    {R"({"prompt":"a","best_of":2})", "best_of", "not supported yet, got 2"},
    {R"({"prompt":"a","logprobs":21})", "logprobs", "a whole number from 0 to 20, got 21"},
    {R"({"prompt":"a","logprobs":true})", "logprobs", "a whole number from 0 to 20, got true"},
};

api::MaybeError parse(bool is_chat, const std::string& body) {
    const api::CallDefaults defaults{.vocab_size = kVocabSize};
    api::Call call;
    auto json = Json::parse(body);
    EXPECT_TRUE(json.ok()) << body;
    return is_chat ? parse_chat(*json, defaults, call) : parse_completion(*json, defaults, call);
}

void expect_refused(const Case& test, bool is_chat, const std::string& body) {
    const auto error = parse(is_chat, body);
    ASSERT_TRUE(error) << "taken: " << body;
    EXPECT_EQ(error->status, 400);
    EXPECT_EQ(error->param, test.param) << body;
    EXPECT_THAT(error->message, testing::HasSubstr(test.message)) << body;
    EXPECT_THAT(error->message, testing::Not(testing::HasSubstr("\n")));
}

const std::string kChatStart = R"({"messages":[{"role":"user","content":"a"}],)";
const std::string kCompletionStart = R"({"prompt":"a",)";

TEST(BadRequests, NameTheFieldTheValueAndWhatWasExpected) {
    for (const Case& test : kBoth) {
        expect_refused(test, true, kChatStart + test.fields + "}");
        expect_refused(test, false, kCompletionStart + test.fields + "}");
    }
    for (const Case& test : kOfChat) expect_refused(test, true, kChatStart + test.fields + "}");
    for (const Case& test : kMessages) expect_refused(test, true, test.fields);
    for (const Case& test : kPrompts) expect_refused(test, false, test.fields);
}

TEST(BadRequests, LongValuesAreCutShort) {
    const auto error = parse(true, kChatStart + R"("stop_token_ids":")" +
                                       std::string(100000, 'x') + R"("})");
    ASSERT_TRUE(error);
    EXPECT_THAT(error->message, testing::EndsWith("got a string of 100000 bytes"));
}

TEST(GoodRequests, ValuesThatChangeNothingAreTaken) {
    const char* const kBothTake[] = {
        R"("unknown_field":{"a":[1]})",
        R"("logprobs":null)", R"("logprobs":false)", R"("top_logprobs":0)", R"("logit_bias":{})",
        R"("frequency_penalty":0)", R"("presence_penalty":0.0)", R"("repetition_penalty":1.1)", R"("logit_bias":{"5":-100})",
        R"("response_format":{"type":"text"})", R"("regex":null)", R"("stop_regex":[])",
        R"("priority":-7)", R"("cache_salt":"s")", R"("stop":[])", R"("stop":null)",
        R"("max_tokens":null)", R"("max_tokens":16.0)", R"("temperature":0)", R"("top_p":1)",
        R"("top_k":-1)", R"("min_p":1)", R"("seed":-5)", R"("n":128)", R"("user":"u")",
        R"("stream_options":null)", R"("stream_options":{})", R"("stop_token_ids":[0,99])",
        R"("return_hidden_states":false)",
    };
    for (const char* fields : kBothTake) {
        for (const bool is_chat : {true, false}) {
            const std::string body = (is_chat ? kChatStart : kCompletionStart) + fields + "}";
            const auto error = parse(is_chat, body);
            EXPECT_FALSE(error) << body << ": " << error->message;
        }
    }
    const char* const kChatTakes[] = {
        R"("tools":[])", R"("tools":null,"tool_choice":"auto")", R"("tool_choice":"none")",
        R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none")",
        R"("parallel_tool_calls":true)", R"("separate_reasoning":false)",
        R"("stream_reasoning":true)", R"("reasoning_effort":null)",
        R"("chat_template_kwargs":{"thinking":true})", R"("max_completion_tokens":5)",
    };
    for (const char* fields : kChatTakes) {
        const auto error = parse(true, kChatStart + fields + "}");
        EXPECT_FALSE(error) << fields << ": " << error->message;
    }
}

TEST(GoodRequests, GrammarsAreReadIntoTheCall) {
    using Kind = Grammar::Kind;
    struct Given {
        const char* fields;
        const char* field;
        Grammar grammar;
    };
    const Given kGiven[] = {
        {R"("regex":"a+")", "regex", {Kind::kRegex, "a+"}},
        {R"("ebnf":"root ::= [a]")", "ebnf", {Kind::kEbnf, "root ::= [a]"}},
        {R"("json_schema":"{\"type\": \"null\"}")", "json_schema",
         {Kind::kJsonSchema, R"({"type": "null"})"}},
        {R"("json_schema":{"type":"null"},"regex":"")", "json_schema",
         {Kind::kJsonSchema, R"({"type":"null"})"}},
        {R"("response_format":{"type":"json_object"})", "response_format",
         {Kind::kJsonSchema, R"({"type":"object"})"}},
        {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"a":1}}})",
         "response_format",
         {Kind::kJsonSchema, R"({"a":1})"}},
        {R"("response_format":{"type":"structural_tag","format":{"type":"any_text"}})",
         "response_format",
         {Kind::kStructuralTag, R"({"type":"structural_tag","format":{"type":"any_text"}})"}},
    };
    for (const Given& given : kGiven) {
        api::Call call;
        auto body = Json::parse(kChatStart + given.fields + "}");
        ASSERT_FALSE(parse_chat(*body, {.vocab_size = kVocabSize}, call)) << given.fields;
        EXPECT_EQ(call.sampling.grammar, given.grammar) << given.fields;
        EXPECT_EQ(call.grammar_field, given.field);
    }
}

TEST(GoodRequests, AToolChoiceThatMakesTheModelCallIsAGrammar) {
    const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}},
        {"type":"function","function":{"name":"g","parameters":{"type":"object"}}}])";
    const api::CallDefaults defaults{.vocab_size = kVocabSize,
                                     .formats = {.tools = parse::ToolFormat::kDeepSeekV31}};
    const auto grammar_of = [&](const std::string& more) {
        api::Call call;
        auto body = Json::parse(kChatStart + tools + more + "}");
        const auto error = parse_chat(*body, defaults, call);
        EXPECT_FALSE(error) << error->message;
        return call.sampling.grammar;
    };
    EXPECT_EQ(grammar_of("").kind, Grammar::Kind::kNone);
    EXPECT_EQ(grammar_of(R"(,"tool_choice":"auto")").kind, Grammar::Kind::kNone);
    const Grammar any = grammar_of(R"(,"tool_choice":"required")");
    EXPECT_EQ(any.kind, Grammar::Kind::kToolCalls);
    EXPECT_THAT(any.text, testing::AllOf(testing::HasSubstr("\"f\""), testing::HasSubstr("\"g\""),
                                         testing::HasSubstr("\"plus\"")));
    const Grammar one = grammar_of(R"(,"tool_choice":"required","parallel_tool_calls":false)");
    EXPECT_THAT(one.text, testing::Not(testing::HasSubstr("\"plus\"")));
    const Grammar named =
        grammar_of(R"(,"tool_choice":{"type":"function","function":{"name":"g"}})");
    EXPECT_THAT(named.text, testing::Not(testing::HasSubstr("\"f\"")));
    for (const std::string bad : {R"(,"tool_choice":{"type":"function","function":{"name":"h"}})",
                                  R"(,"tool_choice":"required","regex":"a")"}) {
        api::Call call;
        auto body = Json::parse(kChatStart + tools + bad + "}");
        const auto error = parse_chat(*body, defaults, call);
        ASSERT_TRUE(error) << bad;
        EXPECT_EQ(error->param, "tool_choice");
    }
    api::Call call;
    auto body = Json::parse(kChatStart + R"("tools":[{"type":"function","function":{"name":"f",
        "parameters":{"enum":[1]}}}],"tool_choice":"required"})");
    const auto error = parse_chat(*body, defaults, call);
    ASSERT_TRUE(error);
    EXPECT_THAT(error->message, testing::HasSubstr("\"f\", whose parameters allow no object"));
}

TEST(GoodRequests, AreReadIntoTheCall) {
    api::Call call;
    const api::CallDefaults defaults{.temperature = 0.6, .top_p = 0.9, .vocab_size = kVocabSize};
    auto json = Json::parse(R"({"prompt":["a","b"],"model":"m","max_tokens":7,"n":2,
        "temperature":1e-9,"top_k":5,"seed":-1,"stop":["x","y"],"stop_token_ids":[3],
        "min_tokens":2,"ignore_eos":true,"no_stop_trim":true,"skip_special_tokens":false,
        "stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},
        "echo":true,"return_token_ids":true,"logits_hash":true,"rid":"r"})");
    ASSERT_FALSE(parse_completion(*json, defaults, call));
    EXPECT_EQ(call.prompts.size(), 2u);
    EXPECT_EQ(call.model, "m");
    EXPECT_EQ(call.max_tokens, 7);
    EXPECT_EQ(call.default_max_tokens, 16);
    EXPECT_EQ(call.n, 2);
    EXPECT_EQ(call.sampling.temperature, 0);  // too small to divide by
    EXPECT_EQ(call.sampling.top_p, 0.9);
    EXPECT_EQ(call.sampling.top_k, 5);
    EXPECT_EQ(call.seed, UINT64_MAX);
    EXPECT_EQ(call.stop.size(), 2u);
    EXPECT_EQ(call.sampling.stop_token_ids, std::vector<int32_t>{3});
    EXPECT_EQ(call.sampling.min_new_tokens, 2);
    EXPECT_TRUE(call.sampling.ignore_eos && call.no_stop_trim && !call.skip_special_tokens);
    EXPECT_TRUE(call.stream && call.include_usage && call.continuous_usage_stats);
    EXPECT_TRUE(call.echo && call.return_token_ids && call.logits_hash);
    EXPECT_EQ(call.rid, "r");
}

TEST(Messages, AreAsTemplatesExpectThem) {
    auto json = Json::parse(R"([{"role":"developer","content":[{"type":"text","text":"a"},
        {"type":"text","text":"b"}],"name":null},{"role":"assistant","content":null,"tool_calls":
        [{"function":{"name":"f","arguments":"{}"}}]},{"role":"assistant","tool_calls":[]},
        {"role":"tool","tool_call_id":"1","content":null}])");
    Json messages;
    ASSERT_FALSE(read_messages(*json, messages));
    EXPECT_EQ(messages.dump(),
              R"([{"role":"system","content":"a b"},)"
              R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"},)"
              R"("type":"function"}],"content":null},{"role":"assistant","content":""},)"
              R"({"role":"tool","tool_call_id":"1","content":""}])");
}

}  // namespace
}  // namespace aerie::openai
