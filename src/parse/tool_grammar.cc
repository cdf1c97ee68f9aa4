#include "parse/tool_grammar.h"

#include <utility>

namespace aerie::parse {
namespace {

constexpr int kMaxBlanks = 16;  // between two parts of the arguments, as of any JSON (grammar/limits.h)

Json token(const char* text) { return Json::object().set("type", "token").set("token", text); }
Json text(std::string value) {
    return Json::object().set("type", "const_string").set("value", std::move(value));
}
Json sequence(Json elements) {
    return Json::object().set("type", "sequence").set("elements", std::move(elements));
}

Json objects_of(const Json& values) {
    Json objects = Json::array();
    if (!values.is_array()) return objects;
    for (const Json& value : values.as_array()) {
        if (value.is_object()) objects.push_back(value);
    }
    return objects;
}

// Arguments are an object, whatever type the schema has or leaves out. What it refers to or is put
// together of (anyOf, …) is taken at its word.
Json object_schema(const Json& schema) {
    if (!schema.is_object()) return Json::object().set("type", "object");
    Json only_objects = schema;
    if (const Json* values = schema.find("enum")) only_objects.set("enum", objects_of(*values));
    const bool has_type = schema.find("type") != nullptr;
    for (const char* key : {"$ref", "anyOf", "oneOf", "allOf"}) {
        if (!has_type && schema.find(key)) return only_objects;
    }
    return only_objects.set("type", "object");
}

Json call_of(ToolFormat format, const Json& function) {
    const std::string& name = function["name"].as_string();
    Json arguments = Json::object().set("type", "json_schema");
    arguments.set("max_whitespace_cnt", kMaxBlanks);
    arguments.set("json_schema", object_schema(function["parameters"]));
    Json parts = Json::array();
    parts.push_back(token("<｜tool▁call▁begin｜>"));
    parts.push_back(text(format == ToolFormat::kDeepSeekV3 ? "function" : name));
    parts.push_back(token("<｜tool▁sep｜>"));
    if (format == ToolFormat::kDeepSeekV3) parts.push_back(text(name + "\n```json\n"));
    parts.push_back(std::move(arguments));
    if (format == ToolFormat::kDeepSeekV3) parts.push_back(text("\n```"));
    parts.push_back(token("<｜tool▁call▁end｜>"));
    return sequence(std::move(parts));
}

}  // namespace

bool may_be_arguments(const Json& schema) {
    if (!schema.is_object()) return true;
    if (const Json* value = schema.find("const"); value && !value->is_object()) return false;
    const Json* values = schema.find("enum");
    return values == nullptr || !objects_of(*values).as_array().empty();
}

std::string tool_call_grammar(ToolFormat format, std::span<const Json> tools, bool one_call) {
    Json calls = Json::array();
    for (const Json& tool : tools) calls.push_back(call_of(format, tool["function"]));
    const Json any = Json::object().set("type", "or").set("elements", std::move(calls));
    Json parts = Json::array();
    parts.push_back(token("<｜tool▁calls▁begin｜>"));
    parts.push_back(one_call || format == ToolFormat::kDeepSeekV3
                        ? any
                        : Json::object().set("type", "plus").set("content", any));
    if (!one_call && format == ToolFormat::kDeepSeekV3) {  // a line break between two
        Json next = Json::array();
        next.push_back(text("\n"));
        next.push_back(any);
        parts.push_back(
            Json::object().set("type", "star").set("content", sequence(std::move(next))));
    }
    parts.push_back(token("<｜tool▁calls▁end｜>"));
    return Json::object()
        .set("type", "structural_tag")
        .set("format", sequence(std::move(parts)))
        .dump();
}

}  // namespace aerie::parse
