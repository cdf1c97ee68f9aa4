// SGLang's native request body → Call.
#pragma once

#include "api/call.h"
#include "api/error.h"
#include "base/json.h"

namespace aerie::native {

// POST /generate. One prompt or a batch: text or input_ids; sampling_params are those of all. The
// defaults are SGLang's own, not the model's.
api::MaybeError parse_generate(const Json& body, const api::CallDefaults& defaults,
                               api::Call& call);

}  // namespace aerie::native
