// The schemas of bodies against the endpoints that read them.
#include <gmock/gmock.h>

#include "frontend/routes.h"
#include "frontend/testing/frontend_fixture.h"

namespace aerie::frontend {
namespace {

// Whether a value obeys a schema, as far as a value of a type, an enum and bounds go.
bool has_type(const Json& schema, std::string_view type) {
    const Json& of = schema["type"];
    if (of.is_array()) {
        for (const Json& each : of.as_array()) {
            if (each == Json(type)) return true;
        }
        return false;
    }
    return of == Json(type) || (type == "integer" && of == Json("number"));
}

// A schema's alternatives, or itself.
std::vector<Json> alternatives(const Json& schema) {
    if (schema["oneOf"].is_array() && schema["type"].is_null()) return schema["oneOf"].as_array();
    return {schema};
}

// Values that the schema allows at its bounds. Of texts and objects the examples are enough.
std::vector<Json> allowed(const Json& schema) {
    std::vector<Json> values;
    for (const Json& one : alternatives(schema)) {
        if (const Json* value = one.find("const")) values.push_back(*value);
        if (const Json* list = one.find("enum")) {
            values.insert(values.end(), list->as_array().begin(), list->as_array().end());
        }
        if (has_type(one, "boolean")) values.insert(values.end(), {true, false});
        if (!has_type(one, "integer")) continue;
        for (const char* bound : {"minimum", "maximum"}) {
            if (one.find(bound)) values.push_back(one[bound]);
        }
    }
    return values;
}

bool any_has_type(const Json& schema, std::string_view type) {
    for (const Json& one : alternatives(schema)) {
        if (has_type(one, type)) return true;
        for (const Json& value : one["enum"].is_array() ? one["enum"].as_array() : Json::Array()) {
            if (value.is_string() && type == "string") return true;
        }
        const Json* constant = one.find("const");
        if (constant && constant->is_string() && type == "string") return true;
        if (constant && constant->is_bool() && type == "boolean") return true;
        if (constant && constant->is_number() && type == "integer") return true;
    }
    return false;
}

// Values that it does not allow: of other types, outside of its bounds, not of its enum.
std::vector<Json> forbidden(const Json& schema) {
    std::vector<Json> values;
    if (!any_has_type(schema, "string")) values.push_back("a text");
    if (!any_has_type(schema, "boolean")) values.push_back(true);
    if (!any_has_type(schema, "integer")) values.push_back(5);
    if (!any_has_type(schema, "object")) values.push_back(Json::object().set("a", 1));
    if (!any_has_type(schema, "array")) {
        Json list = Json::array();
        list.push_back(Json::array());
        values.push_back(std::move(list));
    }
    for (const Json& one : alternatives(schema)) {
        if (one.find("enum") && !has_type(one, "object")) values.push_back("no such word");
        const bool whole = one["type"] == Json("integer");
        const auto beyond = [&](const char* bound, double step) {
            if (one.find(bound) && std::abs(one[bound].as_double()) < 1e15) {
                values.push_back(Json(one[bound].as_double() + step));
            }
        };
        if (alternatives(schema).size() == 1) beyond("minimum", whole ? -1 : -0.01);
        beyond("maximum", whole ? 1 : 0.01);
        beyond("exclusiveMinimum", 0);
    }
    return values;
}

class BodySchemasTest : public FrontendFixture {
  protected:
    void SetUp() override {
        start([](const Request&) { return says("x"); }, options());
    }
    static FrontendOptions options() {
        FrontendOptions options;
        options.context_length = 2000;
        return options;
    }
    static api::CallDefaults defaults() {
        api::CallDefaults defaults;
        defaults.vocab_size = 8192;
        return defaults;
    }
    // Of the fields of a body, and of those of /generate's sampling_params.
    struct Field {
        std::string name;
        const Json* schema;
        bool is_param = false;
    };
    static std::vector<Field> fields_of(const Json& body) {
        std::vector<Field> fields;
        for (const auto& [name, schema] : body["properties"].as_object()) {
            fields.push_back({name, &schema});
            const Json& inner = schema["properties"];
            if (name != "sampling_params") continue;
            for (const auto& [param, of] : inner.as_object()) fields.push_back({param, &of, true});
        }
        return fields;
    }
    static Json with(Json body, const Field& field, const Json& value) {
        if (!field.is_param) return body.set(field.name, value);
        if (!body.find("sampling_params")) body.set("sampling_params", Json::object());
        body.find("sampling_params")->set(field.name, value);
        return body;
    }
    // The example that holds the field: others of it may be needed beside it.
    static const Json& example_of(const Json& schema, const Field& field) {
        const Json::Array& examples = schema["examples"].as_array();
        for (const Json& example : examples) {
            if (example.find(field.name)) return example;
        }
        return examples[0];
    }
};

TEST_F(BodySchemasTest, ExamplesAreAcceptedAndHoldEveryField) {
    for (const Route& route : routes()) {
        if (!route.body) continue;
        const Json schema = route.body(defaults());
        for (const Json& example : schema["examples"].as_array()) {
            const auto reply = post(route.path, example.dump(), "Connection: keep-alive\r\n");
            EXPECT_EQ(reply.status, 200) << route.path << " " << example.dump() << reply.body;
        }
        for (const auto& [name, unused] : schema["properties"].as_object()) {
            // One that is no response here: refused with 404.
            if (name == "previous_response_id") continue;
            EXPECT_TRUE(example_of(schema, {name, nullptr}).find(name))
                << route.path << " " << name;
        }
    }
}

TEST_F(BodySchemasTest, WhatASchemaAllowsIsAccepted) {
    for (const Route& route : routes()) {
        if (!route.body) continue;
        const Json schema = route.body(defaults());
        for (const Field& field : fields_of(schema)) {
            for (const Json& value : allowed(*field.schema)) {
                Json body = with(example_of(schema, field), field, value);
                // Too many for this context, or more than max_tokens.
                if (field.name.ends_with("_tokens") && value == Json(INT32_MAX)) continue;
                if (field.name == "add_generation_prompt")
                    body.set("continue_final_message", false);
                if (field.name == "logprobs" && value == Json(false)) body.set("top_logprobs", 0);
                const auto reply = post(route.path, body.dump());
                EXPECT_EQ(reply.status, 200)
                    << route.path << " " << field.name << " = " << value.dump() << reply.body;
            }
        }
    }
}

TEST_F(BodySchemasTest, WhatASchemaForbidsIsRefusedByName) {
    for (const Route& route : routes()) {
        if (!route.body) continue;
        const Json schema = route.body(defaults());
        for (const Field& field : fields_of(schema)) {
            for (const Json& value : forbidden(*field.schema)) {
                const Json body = with(example_of(schema, field), field, value);
                const auto reply = post(route.path, body.dump());
                EXPECT_EQ(reply.status, 400)
                    << route.path << " " << field.name << " = " << value.dump() << reply.body;
                EXPECT_THAT(reply.body, testing::HasSubstr(field.name))
                    << route.path << " " << field.name << " = " << value.dump();
            }
        }
    }
}

// What a schema names, but for what it requires, may be null, which is as if it were left out.
TEST_F(BodySchemasTest, NullIsAsIfLeftOut) {
    for (const Route& route : routes()) {
        if (!route.body) continue;
        const Json schema = route.body(defaults());
        const Json::Array required =
            schema["required"].is_array() ? schema["required"].as_array() : Json::Array();
        const Json::Array& examples = schema["examples"].as_array();
        for (const Field& field : fields_of(schema)) {
            if (std::ranges::find(required, Json(field.name)) != required.end()) continue;
            const auto without = std::ranges::find_if(
                examples, [&](const Json& example) { return !example.find(field.name); });
            const Json body =
                with(without == examples.end() ? examples[0] : *without, field, Json());
            const auto reply = post(route.path, body.dump());
            EXPECT_EQ(reply.status, 200) << route.path << " " << body.dump() << reply.body;
        }
    }
}

TEST_F(BodySchemasTest, TokenizeTakesOneOfPromptAndMessages) {
    const auto both =
        post("/tokenize", R"({"prompt": "hi", "messages": [{"role": "user", "content": "a"}]})");
    EXPECT_EQ(both.status, 400);
    EXPECT_THAT(both.body, testing::HasSubstr("only one may be"));
    EXPECT_EQ(post("/tokenize", R"({"prompt": null, "messages": null})").status, 400);
}

// Checked without return_logprob, which they need to be used, too.
TEST_F(BodySchemasTest, WhatLogprobsAreAskedForIsChecked) {
    for (const char* name : {"logprob_start_len", "top_logprobs_num", "token_ids_logprob"}) {
        const auto reply = post("/generate", Json::object().set("text", "a").set(name, "b").dump());
        EXPECT_EQ(reply.status, 400) << name;
        EXPECT_THAT(reply.body, testing::HasSubstr(name));
    }
}

TEST_F(BodySchemasTest, WhatNoSchemaNamesIsNotRead) {
    for (const Route& route : routes()) {
        if (!route.body) continue;
        const Json schema = route.body(defaults());
        Json body = schema["examples"].as_array()[0];
        body.set("no_such_field", Json::object());
        keep_fields_of(schema, body);
        EXPECT_EQ(body, schema["examples"].as_array()[0]) << route.path;
    }
}

}  // namespace
}  // namespace aerie::frontend
