// Structural tags as requests bring them → as XGrammar reads them. Private to this folder.
#pragma once

#include <string>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace aerie::grammar {

// {"triggers": […], "structures": [{"begin", "schema", "end"}]} becomes the triggered tags that it
// means; the rest stays as it is. text: JSON.
Result<std::string> without_old_form(const std::string& text);

// {"type": "token", "token": TEXT} becomes that of the token's id, or a constant text where the
// tokenizer has no such token.
Result<std::string> with_token_ids(const std::string& text, const Tokenizer& tokenizer);

}  // namespace aerie::grammar
