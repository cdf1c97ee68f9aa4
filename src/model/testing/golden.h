// The golden files of models/demo: prompts, answers and logits that the NumPy reference
// (tests/golden/reference.py) reproduces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace aerie::model {

struct GoldenPrompt {
    std::vector<int32_t> prompt_ids;
    std::vector<int32_t> output_ids;
};
Result<std::vector<GoldenPrompt>> read_golden_prompts(const std::string& path);

// A tensor of a safetensors file as numbers; F32 and I64 only.
Result<std::vector<double>> read_golden_tensor(const std::string& path, const std::string& name);

// ‖a − b‖ / ‖b‖, as reference.py measures logits. Infinite where sizes differ.
double relative_difference(const std::vector<float>& a, const std::vector<double>& b);

int32_t argmax(const float* values, int64_t n);  // the lowest index wins ties

}  // namespace aerie::model
