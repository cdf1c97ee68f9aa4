#include "sample/row_sampler.h"

#include <algorithm>
#include <atomic>

namespace aerie::sample {

RowSampler::RowSampler(const SamplerOptions& options, ThreadPool* pool)
    : options_(options), pool_(pool) {
    const int num_threads = pool == nullptr ? 1 : pool->num_workers() + 1;
    samplers_.resize(num_threads);
}

void RowSampler::sample(std::span<Draw> draws) {
    std::atomic<size_t> next{0};
    const auto work = [&](int64_t thread) {
        if (!samplers_[thread]) samplers_[thread] = std::make_unique<Sampler>(options_);
        for (size_t i = next++; i < draws.size(); i = next++) {
            Draw& d = draws[i];
            d.token = samplers_[thread]->sample(d.logits, *d.params, d.output, d.position);
        }
    };
    if (pool_ == nullptr || draws.size() < 2) return work(0);
    pool_->parallel_for(std::min(std::ssize(samplers_), std::ssize(draws)), work);
}

}  // namespace aerie::sample
