// RowSampler: the tokens of many rows of logits at once, on all threads. What each row gives is
// what a Sampler gives alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "sample/sampler.h"

namespace aerie::sample {

// The arguments of Sampler::sample for one row, without a mask, and what came of it.
struct Draw {
    const float* logits = nullptr;  // [vocab_size]
    const SamplingParams* params = nullptr;
    std::span<const int32_t> output;
    int64_t position = 0;
    std::optional<Result<int32_t>> token;  // set by RowSampler::sample
};

// One caller at a time.
class RowSampler {
  public:
    // pool may be null: the calling thread then does everything. It outlives the sampler.
    RowSampler(const SamplerOptions& options, ThreadPool* pool);

    void sample(std::span<Draw> draws);

  private:
    SamplerOptions options_;
    ThreadPool* pool_;
    // One for each thread that may work, made when that first does: it holds some 12 bytes an id.
    std::vector<std::unique_ptr<Sampler>> samplers_;
};

}  // namespace aerie::sample
