// The golden answers of the demo model.
#pragma once

#include "base/json.h"
#include "request/request.h"

namespace aerie::cluster_tests {

struct Golden {
    std::vector<int32_t> prompt;
    std::vector<int32_t> output;
};

inline std::vector<Golden> read_goldens(const std::string& name) {
    auto json = read_json_file(std::string(AERIE_SOURCE_DIR "/models/demo/golden/") + name);
    CHECK(json.ok(), "{}", json.message());
    std::vector<Golden> goldens;
    for (const Json& entry : json->as_array()) {
        Golden& golden = goldens.emplace_back();
        for (const Json& id : entry["prompt_ids"].as_array()) golden.prompt.push_back(static_cast<int32_t>(id.as_int()));
        for (const Json& id : entry["output_ids"].as_array()) golden.output.push_back(static_cast<int32_t>(id.as_int()));
    }
    return goldens;
}

inline Request greedy(const std::vector<int32_t>& prompt, int max_new_tokens, bool hash = false) {
    Request request;
    request.prompt = prompt;
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = max_new_tokens;
    request.hash_logits = hash;
    return request;
}

}  // namespace aerie::cluster_tests
