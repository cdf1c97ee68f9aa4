// Call: what a request of any API comes down to. Plain data, made by an API's folder, run by
// frontend/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "config/http_limits.h"
#include "parse/output_parser.h"
#include "request/request.h"

namespace aerie::api {

// What is made into token ids by the chat template.
struct ChatPrompt {
    Json messages;                      // array; content is a string, or null beside tool calls
    Json template_variables = Json::object();  // beside messages: chat_template_kwargs
    Json tools;  // array, checked; null: the template is not told of any
    bool add_generation_prompt = true;
    bool continue_final_message = false;  // the last message is the assistant's, and goes on
};

// A text, ids, or a chat.
using Prompt = std::variant<std::string, std::vector<int32_t>, ChatPrompt>;

struct Call {
    std::string model;            // as the client wrote it; empty where it did not
    std::string rid;              // the client's name for the call; empty: none
    std::vector<Prompt> prompts;  // not empty
    int n = 1;                    // choices for each prompt

    // Without seed, choice, max_new_tokens; its grammar's after_reasoning is set with reasoning_open.
    SamplingParams sampling;
    std::string grammar_field;         // of the request, where the grammar comes from
    std::optional<uint64_t> seed;
    std::optional<int> max_tokens;     // absent: default_max_tokens
    std::optional<int> default_max_tokens;  // absent: to the end of the context
    std::vector<std::string> stop;
    std::vector<std::string> stop_regex;  // each compiles (parse/stop_regexes.h)
    bool no_stop_trim = false;
    bool skip_special_tokens = true;
    // What is parsed out of the output's text; reasoning_open is set when the prompt is encoded.
    parse::ParserOptions parser = {};

    bool stream = false;
    bool include_usage = false;           // of a stream: a chunk at its end
    bool continuous_usage_stats = false;  // of a stream: in each chunk
    bool echo = false;                    // the prompt's text comes before the output
    bool return_token_ids = false;
    bool is_batch = false;                // the prompts came as a list
    bool logits_hash = false;             // test hook: see Request::hash_logits
    int priority = 0;                     // see Request::priority
    std::string cache_salt;
};

// What a request's fields are where it says nothing, and the ranges that depend on the model.
struct CallDefaults {
    double temperature = 1.0;
    double top_p = 1.0;
    int top_k = -1;
    double min_p = 0.0;
    double repetition_penalty = 1.0;
    int vocab_size = 0;
    parse::Formats formats = {};  // in which the model writes reasoning and tool calls
    RequestLimits limits = {};
};

}  // namespace aerie::api
