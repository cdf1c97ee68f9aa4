// The fields of a request that say what its answer must be made of. Whether a grammar is right is
// known when it is compiled (frontend/); here it is read.
#pragma once

#include <string>

#include "api/call.h"
#include "api/error.h"
#include "base/json.h"

namespace aerie::openai {

// Into call.sampling.grammar. An error where the call has a grammar already.
api::MaybeError set_grammar(const char* field, Grammar::Kind kind, std::string text,
                            api::Call& call);

// SGLang's json_schema, regex, ebnf, structural_tag: a string, or an object where it is JSON. An
// empty one is none.
api::MaybeError read_grammar_text(const char* field, Grammar::Kind kind, const Json& value,
                                  api::Call& call);

// response_format: text, json_object, json_schema (its schema is enforced, strict or not) or
// structural_tag.
api::MaybeError read_response_format(const Json& format, api::Call& call);

}  // namespace aerie::openai
