#include "expert/expert_rank.h"

#include <cstring>

#include "base/log.h"
#include "expert/dropped.h"

namespace aerie::expert {
namespace {

int64_t now_ns() { return Clock::now().time_since_epoch().count(); }

}  // namespace

ExpertRank::ExpertRank(ExpertRankOptions options)
    : options_(std::move(options)), side_(exchange::make_expert_side(options_.side)),
      stream_(options_.pool) {
    if (options_.card) card_ = std::make_unique<CardExperts>(*options_.card);
    last_round_ns_ = now_ns();
}

void ExpertRank::run() {
    while (!stopping_) {
        last_round_ns_ = now_ns();
        if (!side_->wait(after(0.5))) continue;
        while (step()) {}
    }
}

void ExpertRank::stop() {
    stopping_ = true;
    side_->wake();
}

double ExpertRank::idle_seconds() const { return static_cast<double>(now_ns() - last_round_ns_) * 1e-9; }

bool ExpertRank::step() {
    std::unique_lock lock(step_mutex_, std::try_to_lock);
    if (!lock) return false;
    const auto group = side_->take();
    if (group.empty()) return false;
    if (!has_experts(group.front().layer)) {
        log_error("expert rank {}: dispatch for layer {} dropped: it has no experts of it",
                  options_.side.expert_rank, group.front().layer);
        return true;
    }
    const TimePoint begin = Clock::now();
    options_.metrics.idle_time.observe(seconds_between(last_busy_, begin));
    rows_total_ = 0;
    for (const auto& waiting : group) rows_total_ += static_cast<int>(waiting.hidden.rows);
    if (card_ != nullptr) {
        card_->compute(group, options_.layers[group.front().layer].front(), *side_);
    } else {
        gather(group);
        compute(group);
    }
    answer(group);
    last_busy_ = Clock::now();
    count(group, seconds_between(begin, last_busy_));
    return true;
}

// The layer comes from a peer.
bool ExpertRank::has_experts(int layer) const {
    return layer >= 0 && layer < std::ssize(options_.layers) && !options_.layers[layer].empty();
}

bool ExpertRank::help() {
    const bool computed = step();
    // Looked at after step() has let go: who came before found it busy, who comes later does not.
    if (computed && side_->something_waits()) side_->wake();
    return computed;
}

// One list of rows with their choices out of several microbatches. A single one stays where it is.
void ExpertRank::gather(std::span<const exchange::Waiting> group) {
    if (group.size() == 1) return;
    const size_t row_bytes = options_.side.hidden * size_of(options_.side.compute);
    auto* to = rows_.reserve_as<std::byte>(rows_total_ * row_bytes);
    offsets_.assign(1, 0);
    choices_.clear();
    for (const auto& waiting : group) {
        const int n = static_cast<int>(waiting.hidden.rows);
        std::memcpy(to, waiting.hidden.data, n * row_bytes);
        to += n * row_bytes;
        const int32_t base = offsets_.back();
        for (int i = 1; i <= n; ++i) offsets_.push_back(base + waiting.offsets[i]);
        choices_.insert(choices_.end(), waiting.choices, waiting.choices + waiting.offsets[n]);
    }
}

void ExpertRank::compute(std::span<const exchange::Waiting> group) {
    const exchange::Waiting& first = group.front();
    const DType compute = options_.side.compute;
    const int hidden = options_.side.hidden;
    const bool single = group.size() == 1;
    const size_t row_bytes = hidden * size_of(compute);
    kernels::ExpertArgs args{
        .x = single ? first.hidden : ConstView(rows_.reserve(rows_total_ * row_bytes), compute,
                                               rows_total_, hidden),
        .offsets = single ? first.offsets : offsets_.data(),
        .choices = single ? first.choices : choices_.data(),
        .experts = options_.layers[first.layer],
        .out = single ? side_->output(first)
                      : View(results_.reserve(rows_total_ * row_bytes), compute, rows_total_, hidden),
        .workspace = &workspace_,
    };
    std::vector<kernels::ExpertChoice> faulty;
    if (fault_planted(Fault::kExpertDropped)) [[unlikely]] {
        faulty.assign(args.choices, args.choices + args.offsets[rows_total_]);
        for (auto& choice : faulty) {
            if (is_dropped(first.layer, options_.first_expert + choice.expert)) choice.weight = 0;
        }
        args.choices = faulty.data();
    }
    kernels::expert_ffn(stream_, args);
    if (single) return;
    const auto* from = static_cast<const std::byte*>(args.out.data);
    for (const auto& waiting : group) {
        const View out = side_->output(waiting);
        std::memcpy(out.data, from, out.rows * row_bytes);
        from += out.rows * row_bytes;
    }
}

void ExpertRank::answer(std::span<const exchange::Waiting> group) {
    for (const auto& waiting : group) side_->reply(waiting);
}

void ExpertRank::count(std::span<const exchange::Waiting> group, double seconds) {
    // A group's time is split over its microbatches by their rows.
    for (const auto& waiting : group) {
        const double part = seconds * static_cast<double>(waiting.hidden.rows) / rows_total_;
        const auto& time = waiting.phase == Phase::kDecode ? options_.metrics.forward_time_decode
                                                           : options_.metrics.forward_time_prefill;
        time.observe(part);
    }
    options_.metrics.tokens.add(rows_total_);
}

}  // namespace aerie::expert
