#include "model/testing/golden.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/json.h"
#include "model/tensor_file.h"

namespace aerie::model {
namespace {

std::vector<int32_t> ids(const Json& array) {
    std::vector<int32_t> out;
    for (const Json& id : array.as_array()) out.push_back(static_cast<int32_t>(id.as_int()));
    return out;
}

}  // namespace

Result<std::vector<GoldenPrompt>> read_golden_prompts(const std::string& path) {
    auto json = read_json_file(path);
    if (!json) return json.error();
    std::vector<GoldenPrompt> prompts;
    for (const Json& entry : json->as_array())
        prompts.push_back({ids(entry["prompt_ids"]), ids(entry["output_ids"])});
    return prompts;
}

Result<std::vector<double>> read_golden_tensor(const std::string& path, const std::string& name) {
    auto file = TensorFile::open(path, false);
    if (!file) return file.error();
    for (const TensorInfo& info : (*file)->tensors()) {
        if (info.name != name) continue;
        const uint64_t bytes = info.end - info.begin;
        if (info.dtype == "I64") {
            std::vector<int64_t> values(bytes / sizeof(int64_t));
            RETURN_IF_ERROR((*file)->read(info.begin, info.end, values.data()));
            return std::vector<double>(values.begin(), values.end());
        }
        if (info.dtype != "F32") return error("{}: {}: is {}", path, name, info.dtype);
        std::vector<float> values(bytes / sizeof(float));
        RETURN_IF_ERROR((*file)->read(info.begin, info.end, values.data()));
        return std::vector<double>(values.begin(), values.end());
    }
    return error("{}: holds no tensor {}", path, name);
}

double relative_difference(const std::vector<float>& a, const std::vector<double>& b) {
    if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return std::sqrt(difference / norm);
}

int32_t argmax(const float* values, int64_t n) {
    return static_cast<int32_t>(std::max_element(values, values + n) - values);
}

}  // namespace aerie::model
