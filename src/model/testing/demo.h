// The demo checkpoint with its goldens, as tests use them.
#pragma once

#include <string>
#include <vector>

#include "model/testing/golden.h"
#include "model/testing/replica.h"

namespace aerie::model {

// Loaded once a process and type. folder: models/demo of the source tree.
TestModel& demo_model(const std::string& folder, DType compute);

// The tokens of the golden's answer that are right when each is computed from the golden tokens
// before it, in chunks of 512 rows. logits, where not null: of all rows.
int count_right(TestReplica& replica, const GoldenPrompt& golden,
                std::vector<float>* logits = nullptr);

// A hash of the logits' bits at every position of the tokens, computed in chunks of `chunk` rows with
// microbatches cut at `cuts`.
uint64_t logits_hash(TestReplica& replica, const std::vector<int32_t>& tokens, int64_t chunk,
                     const std::vector<int64_t>& cuts = {});

}  // namespace aerie::model
