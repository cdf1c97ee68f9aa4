// HttpApi: the frontend with what it reads from the model folder.
#pragma once

#include <memory>

#include "base/result.h"
#include "config/load.h"
#include "control/engine_client.h"
#include "frontend/frontend.h"
#include "template/chat_template.h"

namespace aerie {

struct HttpApi {
    std::unique_ptr<Tokenizer> tokenizer;
    ChatTemplate chat_template;
    std::unique_ptr<frontend::Frontend> frontend;  // uses the two above
};

// Reads the tokenizer and the chat template, and serves from now on. `engine` and `registry` must
// outlive it. The error names the file or the address.
Result<std::unique_ptr<HttpApi>> start_http_api(const LoadedConfig& loaded,
                                                control::EngineClient& engine,
                                                metrics::Registry& registry);

}  // namespace aerie
