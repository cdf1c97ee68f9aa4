#include "frontend/body_schemas.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace aerie::frontend {
namespace {

// "@name" stands for a number that is known when the server starts.
void fill_in(Json& value, const api::CallDefaults& defaults) {
    const std::pair<std::string_view, int> numbers[] = {
        {"@max_id", defaults.vocab_size - 1},
        {"@max_n", defaults.limits.max_n},
        {"@max_messages", defaults.limits.max_messages},
        {"@max_tools", defaults.limits.max_tools},
        {"@max_stop_strings", defaults.limits.max_stop_strings},
        {"@max_logit_bias", defaults.limits.max_logit_bias}};
    if (value.is_array()) {
        for (Json& item : value.as_array()) fill_in(item, defaults);
    } else if (value.is_object()) {
        for (auto& [name, item] : value.as_object()) fill_in(item, defaults);
    } else if (value.is_string() && value.as_string().starts_with('@')) {
        for (const auto& [name, number] : numbers) {
            if (value.as_string() == name) {
                value = number;
                return;
            }
        }
    }
}

// A schema of an object: `properties` and other keywords are texts of JSON.
Json schema_of(std::initializer_list<const char*> properties, const char* others,
               const api::CallDefaults& defaults) {
    Json schema = Json::object().set("type", "object");
    auto more = Json::parse(others);
    CHECK(more.ok());
    for (auto& [name, value] : more->as_object()) schema.set(name, std::move(value));
    Json all = Json::object();
    for (const char* text : properties) {
        auto some = Json::parse(text);
        CHECK(some.ok());
        for (auto& [name, value] : some->as_object()) all.set(name, std::move(value));
    }
    schema.set("properties", std::move(all));
    fill_in(schema, defaults);
    return schema;
}

// Of chats, completions and, under sampling_params, SGLang's own API.
const char* const kSampling = R"({
  "temperature": {"type": "number", "minimum": 0},
  "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
  "top_k": {"oneOf": [{"const": -1}, {"type": "integer", "minimum": 1, "maximum": 2147483647}]},
  "min_p": {"type": "number", "minimum": 0, "maximum": 1},
  "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
  "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
  "repetition_penalty": {"type": "number", "exclusiveMinimum": 0, "maximum": 2},
  "logit_bias": {"type": "object", "maxProperties": "@max_logit_bias",
    "propertyNames": {"pattern": "^[0-9]{1,6}$"},
    "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}},
  "n": {"type": "integer", "minimum": 1, "maximum": "@max_n"},
  "stop": {"oneOf": [{"type": "string", "minLength": 1},
    {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": "@max_stop_strings"}]},
  "stop_regex": {"oneOf": [{"type": "string", "format": "regex", "minLength": 1},
    {"type": "array", "items": {"type": "string", "format": "regex", "minLength": 1}, "maxItems": 4}]},
  "stop_token_ids": {"type": "array", "maxItems": 1024,
    "items": {"type": "integer", "minimum": 0, "maximum": "@max_id"}},
  "ignore_eos": {"type": "boolean"},
  "skip_special_tokens": {"type": "boolean"},
  "no_stop_trim": {"type": "boolean"},
  "json_schema": {"type": ["string", "object"], "description": "a JSON schema"},
  "regex": {"type": "string", "format": "regex"},
  "ebnf": {"type": "string", "description": "a GBNF grammar"},
  "structural_tag": {"type": ["string", "object"]}})";
// Of these and beside sampling_params.
const char* const kOfAnyCall = R"({
  "stream": {"type": "boolean"},
  "rid": {"type": "string", "maxLength": 64},
  "priority": {"type": "integer", "minimum": -2147483648, "maximum": 2147483647},
  "logits_hash": {"type": "boolean", "description": "for tests: hashes of the logits"},
  "lora_path": {"const": "", "description": "not supported"},
  "session_params": {"type": "object", "maxProperties": 0, "description": "not supported"},
  "custom_logit_processor": {"const": "", "description": "not supported"},
  "return_hidden_states": {"const": false, "description": "not supported"}})";
const char* const kOfOpenAi = R"({
  "model": {"type": "string", "maxLength": 64},
  "max_tokens": {"type": "integer", "minimum": 1, "maximum": 2147483647},
  "min_tokens": {"type": "integer", "minimum": 0, "maximum": 2147483647},
  "seed": {"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807},
  "stream_options": {"type": "object", "properties": {
    "include_usage": {"type": "boolean"}, "continuous_usage_stats": {"type": "boolean"}}},
  "cache_salt": {"type": "string", "maxLength": 64},
  "user": {"type": "string", "maxLength": 64},
  "return_token_ids": {"type": "boolean"},
  "custom_params": {"type": "object", "maxProperties": 0, "description": "not supported"},
  "response_format": {"type": "object", "required": ["type"], "oneOf": [
    {"properties": {"type": {"enum": ["text", "json_object"]}}},
    {"properties": {"type": {"const": "json_schema"}, "json_schema": {"type": "object", "required": ["schema"],
      "properties": {"schema": {"type": ["object", "boolean"]}}}}, "required": ["json_schema"]},
    {"properties": {"type": {"const": "structural_tag"}, "format": {"type": "object"}}}]}})";
const char* const kTools = R"({
  "tools": {"type": "array", "maxItems": "@max_tools", "items": {"type": "object", "required": ["function"],
    "properties": {"type": {"const": "function"}, "function": {"type": "object", "required": ["name"],
      "properties": {"name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$"},
        "description": {"type": "string"}, "parameters": {"type": "object"}}}}}}})";
const char* const kMessagesOfChat = R"({
  "messages": {"type": "array", "minItems": 1, "maxItems": "@max_messages", "items": {"type": "object",
    "required": ["role"], "properties": {
      "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
      "content": {"oneOf": [{"type": "string"}, {"type": "null"}, {"type": "array", "items": {"type": "object",
        "required": ["type", "text"], "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}}]},
      "reasoning_content": {"type": "string"}, "name": {"type": "string"}, "tool_call_id": {"type": "string"},
      "tool_calls": {"type": "array", "items": {"type": "object", "required": ["function"], "properties": {
        "id": {"type": "string"}, "type": {"const": "function"},
        "function": {"type": "object", "required": ["name", "arguments"], "properties": {
          "name": {"type": "string"}, "arguments": {"type": ["string", "object"]}}}}}}}}}})";

}  // namespace

Json chat_body(const api::CallDefaults& defaults) {
    const char* const own = R"({
      "max_completion_tokens": {"type": "integer", "minimum": 1, "maximum": 2147483647},
      "logprobs": {"type": "boolean"},
      "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20, "description": "with logprobs true"},
      "tool_choice": {"oneOf": [{"enum": ["none", "auto", "required"]}, {"type": "object",
        "required": ["type", "function"], "properties": {"type": {"const": "function"}, "function":
          {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}}}]},
      "chat_template_kwargs": {"type": "object", "propertyNames":
        {"not": {"enum": ["messages", "tools", "bos_token", "eos_token", "add_generation_prompt"]}}},
      "add_generation_prompt": {"type": "boolean"},
      "continue_final_message": {"type": "boolean", "description": "true where the last message is the assistant's"},
      "parallel_tool_calls": {"type": "boolean"},
      "separate_reasoning": {"type": "boolean"},
      "stream_reasoning": {"type": "boolean"},
      "reasoning_effort": {"enum": ["none", "minimal", "low", "medium", "high", "xhigh", "max"]},
      "functions": {"type": "array", "maxItems": 0, "description": "not supported: tools"},
      "function_call": {"enum": ["none", "auto"], "description": "not supported: tool_choice"}})";
    return schema_of({kMessagesOfChat, kOfOpenAi, kSampling, kTools, kOfAnyCall, own}, R"({
      "required": ["messages"], "examples": [
        {"messages": [{"role": "user", "content": "Hello"}], "model": "m", "max_tokens": 8, "temperature": 0.5,
         "top_p": 0.9, "top_k": 20, "min_p": 0.1, "frequency_penalty": 0.5, "presence_penalty": 0.5,
         "repetition_penalty": 1.1, "logit_bias": {"5": 1}, "n": 2, "stop": ["x"], "stop_regex": "a+b",
         "stop_token_ids": [7], "skip_special_tokens": false, "no_stop_trim": true, "min_tokens": 1, "seed": 1,
         "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": false},
         "rid": "r", "priority": 1, "cache_salt": "s", "user": "u", "return_token_ids": true,
         "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}},
        {"messages": [{"role": "user", "content": "Hello"}], "max_completion_tokens": 8, "logprobs": true,
         "top_logprobs": 2, "tools": [{"type": "function", "function": {"name": "f", "parameters":
         {"type": "object"}}}], "tool_choice": "required", "parallel_tool_calls": false, "separate_reasoning": true,
         "stream_reasoning": false, "reasoning_effort": "low", "chat_template_kwargs": {"thinking": true}},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "max_tokens": 4,
         "continue_final_message": true, "add_generation_prompt": false, "ignore_eos": true, "ebnf": "root ::= \"a\"",
         "logits_hash": false, "lora_path": "", "session_params": {}, "custom_logit_processor": "",
         "return_hidden_states": false, "custom_params": {}, "functions": [], "function_call": "none"},
        {"messages": [{"role": "user", "content": "a"}], "regex": "[a-z]+", "max_tokens": 4},
        {"messages": [{"role": "user", "content": "a"}], "json_schema": "{}", "max_tokens": 4},
        {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4, "structural_tag":
         {"triggers": ["<f"], "structures": [{"begin": "<f>", "schema": {"type": "object"}, "end": "</f>"}]}}]})",
                     defaults);
}

Json completion_body(const api::CallDefaults& defaults) {
    const char* const own = R"({
      "prompt": {"oneOf": [{"type": "string"},
        {"type": "array", "minItems": 1, "items": {"type": "string"}},
        {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0, "maximum": "@max_id"}},
        {"type": "array", "minItems": 1, "items": {"type": "array", "minItems": 1, "items":
          {"type": "integer", "minimum": 0, "maximum": "@max_id"}}}]},
      "logprobs": {"oneOf": [{"const": false}, {"type": "integer", "minimum": 0, "maximum": 20}]},
      "echo": {"type": "boolean"},
      "suffix": {"const": "", "description": "not supported"},
      "best_of": {"const": 1, "description": "not supported"},
      "top_logprobs": {"const": 0, "description": "not supported: logprobs is their number"}})";
    return schema_of({own, kOfOpenAi, kSampling, kOfAnyCall}, R"({
      "required": ["prompt"], "examples": [
        {"prompt": ["a", "b"], "model": "m", "max_tokens": 8, "temperature": 0.5, "top_p": 0.9, "top_k": 20,
         "min_p": 0.1, "frequency_penalty": 0.5, "presence_penalty": 0.5, "repetition_penalty": 1.1,
         "logit_bias": {"5": 1}, "n": 2, "stop": "x", "stop_regex": ["a+b"], "stop_token_ids": [7],
         "skip_special_tokens": false, "no_stop_trim": true, "min_tokens": 1, "seed": 1, "stream": true,
         "stream_options": {"include_usage": true}, "rid": "r", "priority": 1, "cache_salt": "s", "user": "u",
         "return_token_ids": true, "logprobs": 2, "echo": true},
        {"prompt": [5, 6], "max_tokens": 4, "ignore_eos": true, "ebnf": "root ::= \"a\"", "logits_hash": false,
         "lora_path": "", "session_params": {}, "custom_logit_processor": "", "return_hidden_states": false,
         "custom_params": {}, "suffix": "", "best_of": 1, "top_logprobs": 0},
        {"prompt": "a", "regex": "[a-z]+"}, {"prompt": "a", "json_schema": {"type": "object"}},
        {"prompt": "a", "response_format": {"type": "json_object"}},
        {"prompt": "a", "structural_tag":
         {"triggers": ["<f"], "structures": [{"begin": "<f>", "schema": {"type": "object"}, "end": "</f>"}]}}]})",
                     defaults);
}

Json generate_body(const api::CallDefaults& defaults) {
    const char* const own = R"({
      "text": {"oneOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"type": "string"}}]},
      "input_ids": {"oneOf": [
        {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0, "maximum": "@max_id"}},
        {"type": "array", "minItems": 1, "items": {"type": "array", "minItems": 1, "items":
          {"type": "integer", "minimum": 0, "maximum": "@max_id"}}}]},
      "return_logprob": {"type": "boolean"},
      "logprob_start_len": {"type": "integer", "minimum": -1, "maximum": 1073741824},
      "top_logprobs_num": {"type": "integer", "minimum": 0, "maximum": 20},
      "token_ids_logprob": {"type": "array", "maxItems": 1024,
        "items": {"type": "integer", "minimum": 0, "maximum": "@max_id"}},
      "image_data": {"type": "null"}, "audio_data": {"type": "null"}, "video_data": {"type": "null"},
      "input_embeds": {"type": "null"}})";
    Json schema = schema_of({own, kOfAnyCall}, R"({
      "oneOf": [{"required": ["text"], "properties": {"input_ids": {"type": "null"}}},
                {"required": ["input_ids"], "properties": {"text": {"type": "null"}}}],
      "examples": [
        {"text": "Hello", "sampling_params": {"max_new_tokens": 4, "temperature": 0}, "stream": true, "rid": "r",
         "priority": 1, "logits_hash": false, "lora_path": "", "session_params": {}, "custom_logit_processor": "",
         "return_hidden_states": false, "image_data": null, "audio_data": null, "video_data": null,
         "input_embeds": null},
        {"input_ids": [[5, 6], [7]], "return_logprob": true, "logprob_start_len": 0, "top_logprobs_num": 1,
         "token_ids_logprob": [3]}]})",
                            defaults);
    const char* const renamed = R"({
      "max_new_tokens": {"type": "integer", "minimum": 1, "maximum": 2147483647},
      "min_new_tokens": {"type": "integer", "minimum": 0, "maximum": 2147483647},
      "sampling_seed": {"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807}})";
    schema.find("properties")
        ->set("sampling_params", schema_of({renamed, kSampling}, "{}", defaults));
    return schema;
}

namespace {

const char* const kOfMessages = R"({
  "model": {"type": "string", "maxLength": 64},
  "system": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "object",
    "required": ["type", "text"], "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}}]},
  "messages": {"type": "array", "minItems": 1, "maxItems": "@max_messages", "items": {"type": "object",
    "required": ["role", "content"], "oneOf": [
      {"properties": {"role": {"const": "user"}, "content": {"oneOf": [{"type": "string"}, {"type": "array",
        "items": {"type": "object", "required": ["type"], "oneOf": [
          {"required": ["text"], "properties": {"type": {"const": "text"}, "text": {"type": "string"}}},
          {"required": ["tool_use_id"], "properties": {"type": {"const": "tool_result"},
            "tool_use_id": {"type": "string"}, "is_error": {"type": "boolean"}, "content": {"oneOf": [
              {"type": "string"}, {"type": "array", "items": {"type": "object", "required": ["type", "text"],
                "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}}]}}}]}}]}}},
      {"properties": {"role": {"const": "assistant"}, "content": {"oneOf": [{"type": "string"}, {"type": "array",
        "items": {"type": "object", "required": ["type"], "oneOf": [
          {"required": ["text"], "properties": {"type": {"const": "text"}, "text": {"type": "string"}}},
          {"required": ["id", "name", "input"], "properties": {"type": {"const": "tool_use"},
            "id": {"type": "string"}, "name": {"type": "string"}, "input": {"type": "object"}}},
          {"required": ["thinking"], "properties": {"type": {"const": "thinking"},
            "thinking": {"type": "string"}}},
          {"properties": {"type": {"const": "redacted_thinking"}}}]}}]}}}]}},
  "tools": {"type": "array", "maxItems": "@max_tools", "items": {"type": "object",
    "required": ["name", "input_schema"], "properties": {"type": {"const": "custom"},
      "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$"}, "description": {"type": "string"},
      "input_schema": {"type": "object"}}}},
  "tool_choice": {"type": "object", "required": ["type"], "properties": {
    "type": {"enum": ["auto", "any", "tool", "none"]}, "name": {"type": "string"},
    "disable_parallel_tool_use": {"type": "boolean"}}},
  "thinking": {"type": "object", "required": ["type"],
    "properties": {"type": {"enum": ["enabled", "adaptive", "disabled"]}, "budget_tokens": {"type": "integer"}}}})";

}  // namespace

Json messages_body(const api::CallDefaults& defaults) {
    const char* const own = R"({
      "max_tokens": {"type": "integer", "minimum": 1, "maximum": 2147483647},
      "temperature": {"type": "number", "minimum": 0},
      "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
      "top_k": {"oneOf": [{"const": -1}, {"type": "integer", "minimum": 1, "maximum": 2147483647}]},
      "stop_sequences": {"type": "array", "items": {"type": "string", "minLength": 1},
                         "maxItems": "@max_stop_strings"},
      "stream": {"type": "boolean"}})";
    return schema_of({kOfMessages, own}, R"({
      "required": ["messages", "max_tokens"], "examples": [
        {"model": "m", "max_tokens": 8, "system": "s", "messages": [{"role": "user", "content": "Hello"}],
         "temperature": 0.5, "top_p": 0.9, "top_k": 20, "stop_sequences": ["x"], "stream": true,
         "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "auto"},
         "thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"max_tokens": 8, "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]},
          {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "redacted_thinking"},
            {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r"}]}]}]})",
                     defaults);
}

Json count_tokens_body(const api::CallDefaults& defaults) {
    return schema_of({kOfMessages}, R"({"required": ["messages"], "examples": [
        {"model": "m", "system": "s", "messages": [{"role": "user", "content": "Hello"}],
         "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "auto"},
         "thinking": {"type": "disabled"}}]})",
                     defaults);
}

Json responses_body(const api::CallDefaults& defaults) {
    return schema_of({R"({
      "model": {"type": "string", "maxLength": 64},
      "input": {"oneOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"type": "object",
        "oneOf": [
          {"required": ["role", "content"], "properties": {"type": {"const": "message"},
            "role": {"enum": ["system", "developer", "user", "assistant"]}, "content": {"oneOf": [{"type": "string"},
            {"type": "array", "items": {"type": "object", "required": ["type", "text"], "properties":
              {"type": {"enum": ["input_text", "output_text", "text"]}, "text": {"type": "string"}}}}]}}},
          {"required": ["type", "call_id", "name", "arguments"], "properties": {"type": {"const": "function_call"},
            "call_id": {"type": "string"}, "name": {"type": "string"}, "arguments": {"type": "string"}}},
          {"required": ["type", "call_id", "output"], "properties": {"type": {"const": "function_call_output"},
            "call_id": {"type": "string"}, "output": {"oneOf": [{"type": "string"},
            {"type": "array", "items": {"type": "object", "required": ["type", "text"], "properties":
              {"type": {"enum": ["input_text", "output_text", "text"]}, "text": {"type": "string"}}}}]}}},
          {"required": ["type"], "properties": {"type": {"const": "reasoning"}}}]}}]},
      "instructions": {"type": "string"},
      "previous_response_id": {"type": "string"},
      "store": {"type": "boolean"},
      "max_output_tokens": {"type": "integer", "minimum": 1, "maximum": 2147483647},
      "temperature": {"type": "number", "minimum": 0},
      "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
      "stream": {"type": "boolean"},
      "user": {"type": "string", "maxLength": 64},
      "parallel_tool_calls": {"type": "boolean"},
      "tools": {"type": "array", "maxItems": "@max_tools", "items": {"type": "object", "required": ["type", "name"],
        "properties": {"type": {"const": "function"}, "name": {"type": "string", "pattern":
          "^[A-Za-z0-9_.-]{1,64}$"}, "description": {"type": "string"}, "parameters": {"type": "object"}}}},
      "tool_choice": {"oneOf": [{"enum": ["none", "auto", "required"]}, {"type": "object",
        "required": ["type", "name"], "properties": {"type": {"const": "function"}, "name": {"type": "string"}}}]},
      "reasoning": {"type": "object", "properties": {
        "effort": {"enum": ["none", "minimal", "low", "medium", "high", "xhigh", "max"]}}},
      "text": {"type": "object", "properties": {"format": {"type": "object", "required": ["type"], "oneOf": [
        {"properties": {"type": {"enum": ["text", "json_object"]}}},
        {"properties": {"type": {"const": "json_schema"}, "schema": {"type": ["object", "boolean"]}},
         "required": ["schema"]}]}}},
      "background": {"const": false, "description": "not supported"},
      "metadata": {"type": "object"}})"},
                     R"({"required": ["input"], "examples": [
        {"model": "m", "input": "Hello", "instructions": "i", "store": false, "max_output_tokens": 8,
         "temperature": 0.5, "top_p": 0.9, "stream": true, "user": "u", "parallel_tool_calls": true,
         "tools": [{"type": "function", "name": "f"}], "tool_choice": "auto", "reasoning": {"effort": "low"},
         "background": false, "metadata": {"a": "b"}, "text": {"format": {"type": "text"}}},
        {"max_output_tokens": 8, "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]},
          {"type": "reasoning"}, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
          {"type": "function_call_output", "call_id": "c", "output": "r"}]}]})",
                     defaults);
}

Json tokenize_body(const api::CallDefaults& defaults) {
    return schema_of(
        {kMessagesOfChat,
         R"({"prompt": {"type": "string"}, "add_special_tokens": {"type": "boolean"}})"},
        R"({"oneOf": [{"required": ["prompt"], "properties": {"messages": {"type": "null"}}},
                                   {"required": ["messages"], "properties": {"prompt": {"type": "null"}}}],
                         "examples": [{"prompt": "Hello", "add_special_tokens": true},
                                      {"messages": [{"role": "user", "content": "Hello"}]}]})",
        defaults);
}

Json detokenize_body(const api::CallDefaults& defaults) {
    return schema_of(
        {R"({"tokens": {"type": "array",
                                     "items": {"type": "integer", "minimum": 0, "maximum": "@max_id"}},
                          "skip_special_tokens": {"type": "boolean"}})"},
        R"({"required": ["tokens"], "examples": [{"tokens": [5, 6], "skip_special_tokens": true}]})",
        defaults);
}

Json parse_function_call_body(const api::CallDefaults& defaults) {
    return schema_of(
        {kTools, R"({"text": {"type": "string"},
                                        "tool_call_parser": {"enum": ["deepseekv3", "deepseekv31"]}})"},
        R"({"required": ["text", "tools"], "examples": [{"text": "a", "tool_call_parser": "deepseekv31",
                         "tools": [{"type": "function", "function": {"name": "f"}}]}]})",
        defaults);
}

Json separate_reasoning_body(const api::CallDefaults& defaults) {
    return schema_of({R"({"text": {"type": "string"},
                          "reasoning_parser": {"enum": ["deepseek-r1", "deepseek-v3"]}})"},
                     R"({"required": ["text"],
                         "examples": [{"text": "a</think>b", "reasoning_parser": "deepseek-v3"}]})",
                     defaults);
}

Json abort_body(const api::CallDefaults& defaults) {
    return schema_of({R"({"rid": {"type": "string"}, "abort_all": {"type": "boolean"}})"},
                     R"({"examples": [{"rid": "r", "abort_all": false}]})", defaults);
}

void keep_fields_of(const Json& schema, Json& body) {
    const Json& fields = schema["properties"];
    std::erase_if(body.as_object(), [&](const auto& member) { return !fields.find(member.first); });
}

}  // namespace aerie::frontend
