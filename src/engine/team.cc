#include "engine/team.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/fault.h"
#include "base/log.h"

namespace aerie::engine {
namespace {

// Tells the leader's handoff that a layer's KV is complete, and the metrics how long it took.
class StepObserver final : public model::LayerObserver {
  public:
    StepObserver(const std::function<void(int, int)>& done, const std::function<void()>* launched,
                 const model::RankPlaceInReplica& place, int last_microbatch,
                 metrics::Histogram attention_time, metrics::Histogram experts_time)
        : done_(done), launched_(launched), place_(place), last_(last_microbatch),
          attention_time_(attention_time), experts_time_(experts_time) {}
    void layer_done(int layer, int microbatch) override {
        if (place_.tp == 0 && microbatch == last_) done_(place_.cp, layer);
    }
    void attention_time(int, int, double seconds) override {
        if (place_.index() == 0) attention_time_.observe(seconds);
    }
    void experts_time(int, double seconds) override { experts_time_.observe(seconds); }
    void launched() override {
        if (place_.index() == 0 && launched_ != nullptr) (*launched_)();
    }

  private:
    const std::function<void(int, int)>& done_;
    const std::function<void()>* launched_;
    const model::RankPlaceInReplica& place_;
    const int last_;
    const metrics::Histogram attention_time_;
    const metrics::Histogram experts_time_;
};

void copy_page(KvPool& from, int32_t source, KvPool& to, int32_t target) {
    for (int layer = 0; layer < from.num_layers(); ++layer)
        std::memcpy(to.block(layer, target), from.block(layer, source), from.block_bytes());
}

}  // namespace

Team::Team(std::string name, std::vector<Rank> ranks, std::unique_ptr<comm::Group> group,
           metrics::AttentionMetrics metrics)
    : name_(std::move(name)), ranks_(std::move(ranks)), group_(std::move(group)),
      metrics_(std::move(metrics)) {
    for (size_t r = 1; r < ranks_.size(); ++r) {
        threads_.emplace_back([this, r] {
            set_thread_name(name_ + "." + std::to_string(r));
            follow(static_cast<int>(r));
        });
    }
}

Team::~Team() {
    stopping_ = true;
    begin_.notify();
    for (auto& thread : threads_) thread.join();
}

Status Team::forward(const model::StepInput& step, const std::function<void(int, int)>& layer_done,
                     const std::function<void()>& launched) {
    launched_ = &launched;
    Status ran = compute(step, nullptr, layer_done);
    launched_ = nullptr;
    return ran;
}

Status Team::draft(const model::DraftInput& input, const std::function<void(int, int)>& layer_done) {
    return compute(input.step, &input, layer_done);
}

Status Team::compute(const model::StepInput& step, const model::DraftInput* draft,
                     const std::function<void(int, int)>& layer_done) {
    step_ = &step;
    draft_ = draft;
    layer_done_ = &layer_done;
    failure_.clear();
    run_all();
    if (failure_.empty()) return {};
    group_->reset();
    for (Rank& rank : ranks_) rank.exchange->reset();
    return error("{}", failure_);
}

cache::CopiesMade Team::copy(std::span<const cache::KvCopy> copies) {
    step_ = nullptr;
    copies_ = copies;
    copies_made_ = {.num_good = copies.size()};
    run_all();
    return copies_made_;
}

void Team::run_all() {
    num_ended_wanted_ += threads_.size();
    if (!threads_.empty()) begin_.notify();
    run(0);
    // A rank that fails aborts the group, and each wait in a step has a limit, so all come back.
    for (uint64_t ended = ended_.value(); ended < num_ended_wanted_;) {
        ended = ended_.wait(ended, after(1));
    }
}

void Team::follow(int rank) {
    uint64_t seen = 0;
    while (true) {
        const uint64_t now = begin_.wait(seen, after(1));
        if (stopping_) return;
        if (now == seen) continue;
        seen = now;
        run(rank);
        ended_.notify();
    }
}

void Team::run(int rank) { step_ == nullptr ? copy_on(rank) : compute_on(rank); }

void Team::compute_on(int rank) {
    Rank& self = ranks_[rank];
    const int last = static_cast<int>(step_->microbatch_begin.size()) - 1;
    const bool decodes = step_->phase == Phase::kDecode;
    StepObserver observer(
        *layer_done_, launched_, self.place, last,
        decodes ? metrics_.forward_time_decode : metrics_.forward_time_prefill,
        decodes ? self.experts.forward_time_decode : self.experts.forward_time_prefill);
    const uint64_t eager_before = self.model->num_eager_steps();
    const Status status = draft_ != nullptr ? self.model->draft(*draft_, &observer)
                                            : self.model->forward(*step_, &observer);
    count_eager(rank, eager_before);
    if (status) return;
    group_->abort(status.message());
    std::lock_guard lock(failure_mutex_);
    if (failure_.empty()) failure_ = status.message();
}

// A card's decode step that no graph was made for: slower, so it is told.
void Team::count_eager(int rank, uint64_t before) {
    const uint64_t now = ranks_[rank].model->num_eager_steps();
    metrics_.eager_steps.add(static_cast<double>(now - before));
    if (before == 0 && now > 0)
        log_warning("{}: a decode step of {} rows ran kernel by kernel, as no graph is made for it; later "
                    "ones are counted in sglang:ae_sep_eager_steps_total", name_, step_->tokens.size());
}

void Team::copy_on(int rank) {
    const Rank& self = ranks_[rank];
    if (self.place.tp != 0) return;
    const auto pool_of = [&](cache::Tier tier) {
        KvPool* pool = tier == cache::Tier::kDevice ? self.pool : self.host_pool;
        CHECK(pool != nullptr, "cp rank {} has no host memory", self.place.cp);
        return pool;
    };
    size_t num_good = copies_.size();
    for (size_t i = 0; i < copies_.size(); ++i) {
        const cache::KvCopy& copy = copies_[i];
        if (copy.cp_rank != self.place.cp) continue;
        if (copy.to == cache::Tier::kFile) {
            self.file->write(copy.target, *pool_of(copy.from), copy.source);
        } else if (copy.from == cache::Tier::kFile) {
            if (!self.file->read(copy.source, *self.pool, copy.target))
                num_good = std::min(num_good, i);
        } else {
            copy_page(*pool_of(copy.from), copy.source, *pool_of(copy.to), copy.target);
            if (copy.to == cache::Tier::kHost && fault_planted(Fault::kHostPageZeroed)) [[unlikely]]
                std::memset(self.host_pool->block(0, copy.target), 0, self.pool->block_bytes());
        }
    }
    std::lock_guard lock(failure_mutex_);
    copies_made_.num_good = std::min(copies_made_.num_good, num_good);
    if (self.file != nullptr) copies_made_.file_works &= self.file->works();
}

}  // namespace aerie::engine
