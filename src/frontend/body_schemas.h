// What each endpoint reads of a request's body, as a JSON schema, for /openapi.json.
//
// It is the list of a body's fields: what `properties` does not name is taken out before the body is
// read (Handlers::read_body), so that nothing is read that is not here. That each field is read as
// the schema says is tested against the endpoints themselves (body_schemas_test.cc).
//
// A null is read as a field that is left out, which the schemas do not say. Where what is right
// depends on other fields, or is a language of its own (grammars), a schema says only part of it.
#pragma once

#include "api/call.h"
#include "base/json.h"

namespace aerie::frontend {

// With the limits of `defaults` as its bounds. `examples` together hold every field.
using BodySchema = Json (*)(const api::CallDefaults& defaults);

Json chat_body(const api::CallDefaults& defaults);
Json completion_body(const api::CallDefaults& defaults);
Json generate_body(const api::CallDefaults& defaults);
Json messages_body(const api::CallDefaults& defaults);
Json count_tokens_body(const api::CallDefaults& defaults);
Json responses_body(const api::CallDefaults& defaults);
Json tokenize_body(const api::CallDefaults& defaults);
Json detokenize_body(const api::CallDefaults& defaults);
Json parse_function_call_body(const api::CallDefaults& defaults);
Json separate_reasoning_body(const api::CallDefaults& defaults);
Json abort_body(const api::CallDefaults& defaults);

// Takes out what the schema's properties do not name. body: an object.
void keep_fields_of(const Json& schema, Json& body);

}  // namespace aerie::frontend
