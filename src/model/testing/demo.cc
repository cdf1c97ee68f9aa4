#include "model/testing/demo.h"

#include <map>

#include "base/hash.h"

namespace aerie::model {

TestModel& demo_model(const std::string& folder, DType compute) {
    static std::map<DType, std::unique_ptr<TestModel>> models;
    auto& model = models[compute];
    if (!model) {
        auto loaded = TestModel::load(folder, {.compute = compute});
        CHECK(loaded.ok(), "{}", loaded.message());
        model = *std::move(loaded);
    }
    return *model;
}

int count_right(TestReplica& replica, const GoldenPrompt& golden, std::vector<float>* logits) {
    std::vector<int32_t> tokens = golden.prompt_ids;
    tokens.insert(tokens.end(), golden.output_ids.begin(), golden.output_ids.end());
    std::vector<float> all;
    const Status status = replica.prefill(replica.add_sequence(tokens), 512, true, all);
    CHECK(status.ok(), "{}", status.message());
    const size_t vocab = all.size() / tokens.size();
    int right = 0;
    for (size_t i = 0; i < golden.output_ids.size(); ++i) {
        const size_t row = golden.prompt_ids.size() + i - 1;
        right += argmax(&all[row * vocab], static_cast<int64_t>(vocab)) == golden.output_ids[i];
    }
    if (logits != nullptr) *logits = std::move(all);
    return right;
}

uint64_t logits_hash(TestReplica& replica, const std::vector<int32_t>& tokens, int64_t chunk,
                     const std::vector<int64_t>& cuts) {
    std::vector<float> all;
    const Status status = replica.prefill(replica.add_sequence(tokens), chunk, true, all, cuts);
    CHECK(status.ok(), "{}", status.message());
    return hash_bytes(all.data(), all.size() * sizeof(float));
}

}  // namespace aerie::model
