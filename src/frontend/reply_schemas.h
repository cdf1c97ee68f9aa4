// What answers hold, as far as clients read it, as JSON schemas for /openapi.json. They say what is
// always there; schemathesis (tests/http) holds the answers to them.
#pragma once

namespace aerie::frontend {

inline constexpr const char* kErrorReply = R"({"type": "object", "required": ["error"], "properties": {
  "error": {"type": "object", "required": ["type", "message"],
    "properties": {"type": {"type": "string"}, "message": {"type": "string"}}}}})";

// Of a stream, each event.
inline constexpr const char* kEventReply = R"({"type": "object", "required": ["data"], "properties": {
  "event": {"type": "string"}, "data": {"type": "string"}}})";

inline constexpr const char* kChatReply = R"({"type": "object",
  "required": ["id", "object", "created", "model", "choices", "usage"], "properties": {
    "id": {"type": "string"}, "object": {"const": "chat.completion"}, "created": {"type": "integer"},
    "model": {"type": "string"}, "choices": {"type": "array", "minItems": 1, "items": {"type": "object",
      "required": ["index", "message", "finish_reason"], "properties": {
        "index": {"type": "integer"}, "finish_reason": {"enum": ["stop", "length", "tool_calls", "abort"]},
        "message": {"type": "object", "required": ["role", "content"], "properties": {
          "role": {"const": "assistant"}, "content": {"type": ["string", "null"]},
          "reasoning_content": {"type": ["string", "null"]}, "tool_calls": {"type": ["array", "null"]}}}}}},
    "usage": {"type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens"]}}})";

inline constexpr const char* kCompletionReply = R"({"type": "object",
  "required": ["id", "object", "created", "model", "choices", "usage"], "properties": {
    "id": {"type": "string"}, "object": {"const": "text_completion"}, "created": {"type": "integer"},
    "model": {"type": "string"}, "choices": {"type": "array", "minItems": 1, "items": {"type": "object",
      "required": ["index", "text", "finish_reason"], "properties": {"index": {"type": "integer"},
        "text": {"type": "string"}, "finish_reason": {"enum": ["stop", "length", "abort"]}}}},
    "usage": {"type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens"]}}})";

inline constexpr const char* kMessagesReply = R"({"type": "object",
  "required": ["id", "type", "role", "model", "content", "stop_reason", "usage"], "properties": {
    "id": {"type": "string"}, "type": {"const": "message"}, "role": {"const": "assistant"},
    "model": {"type": "string"}, "stop_reason": {"type": "string"},
    "content": {"type": "array", "items": {"type": "object", "required": ["type"], "properties": {
      "type": {"enum": ["text", "thinking", "tool_use"]}}}},
    "usage": {"type": "object", "required": ["input_tokens", "output_tokens"]}}})";

inline constexpr const char* kCountReply = R"({"type": "object", "required": ["input_tokens"],
  "properties": {"input_tokens": {"type": "integer"}}})";

inline constexpr const char* kResponsesReply = R"({"type": "object",
  "required": ["id", "object", "status", "model", "output", "usage"], "properties": {
    "id": {"type": "string"}, "object": {"const": "response"},
    "status": {"enum": ["completed", "incomplete", "failed"]}, "output": {"type": "array", "items": {
      "type": "object", "required": ["type"]}}}})";

inline constexpr const char* kGenerateReply = R"({"oneOf": [
  {"type": "object", "required": ["text", "output_ids", "meta_info"], "properties": {
    "text": {"type": "string"}, "output_ids": {"type": "array"}, "meta_info": {"type": "object"}}},
  {"type": "array", "items": {"type": "object", "required": ["text", "output_ids", "meta_info"]}}]})";

inline constexpr const char* kModelReply = R"({"type": "object", "required": ["id", "object", "owned_by"],
  "properties": {"id": {"type": "string"}, "object": {"const": "model"}}})";
inline constexpr const char* kModelsReply = R"({"type": "object", "required": ["data"], "properties": {
  "data": {"type": "array", "items": {"type": "object", "required": ["id"]}}}})";

inline constexpr const char* kTokenizeReply = R"({"type": "object",
  "required": ["tokens", "count", "max_model_len"], "properties": {
    "tokens": {"type": "array", "items": {"type": "integer"}}, "count": {"type": "integer"}}})";
inline constexpr const char* kTextReply = R"({"type": "object", "required": ["text"],
  "properties": {"text": {"type": "string"}}})";
inline constexpr const char* kCallsReply = R"({"type": "object", "required": ["normal_text", "calls"],
  "properties": {"normal_text": {"type": "string"}, "calls": {"type": "array"}}})";
inline constexpr const char* kReasoningReply = R"({"type": "object",
  "required": ["reasoning_text", "text"],
  "properties": {"reasoning_text": {"type": "string"}, "text": {"type": "string"}}})";

}  // namespace aerie::frontend
