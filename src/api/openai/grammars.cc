#include "api/openai/grammars.h"

#include <utility>

#include "api/openai/fields.h"

namespace aerie::openai {

using api::ApiError;
using api::Call;
using api::MaybeError;
using Kind = Grammar::Kind;

MaybeError set_grammar(const char* field, Kind kind, std::string text, Call& call) {
    if (!call.grammar_field.empty()) {
        return ApiError{
            .message = fmt::format("only one of response_format, json_schema, regex, ebnf, "
                                   "structural_tag and a tool_choice that makes the model call a "
                                   "tool may be given, got {} and {}",
                                   call.grammar_field, field),
            .param = field};
    }
    call.grammar_field = field;
    call.sampling.grammar = {.kind = kind, .text = std::move(text)};
    return {};
}

MaybeError read_grammar_text(const char* field, Kind kind, const Json& value, Call& call) {
    if (value == Json("") || value == Json::object()) return {};
    const bool is_json = kind == Kind::kJsonSchema || kind == Kind::kStructuralTag;
    if (is_json && value.is_object()) return set_grammar(field, kind, value.dump(), call);
    if (!value.is_string()) {
        return wrong(field, is_json ? "a string of JSON, or an object" : "a string", value);
    }
    return set_grammar(field, kind, value.as_string(), call);
}

MaybeError read_response_format(const Json& format, Call& call) {
    const char* const field = "response_format";
    if (!format.is_object()) return wrong(field, "an object", format);
    const Json& type = format["type"];
    if (type == Json("text")) return {};
    if (type == Json("json_object")) {
        return set_grammar(field, Kind::kJsonSchema, R"({"type":"object"})", call);
    }
    if (type == Json("structural_tag")) {
        return set_grammar(field, Kind::kStructuralTag, format.dump(), call);
    }
    if (type != Json("json_schema")) {
        return wrong("response_format.type", "text, json_object, json_schema or structural_tag",
                     type);
    }
    const Json& schema = format["json_schema"]["schema"];
    if (!schema.is_object() && !schema.is_bool()) {
        return wrong("response_format.json_schema.schema", "an object, a JSON schema", schema);
    }
    return set_grammar(field, Kind::kJsonSchema, schema.dump(), call);
}

}  // namespace aerie::openai
