#include "schedule/new_token_ratio.h"

#include <algorithm>

namespace aerie::schedule {
namespace {
constexpr double kStart = 0.7;             // times conservativeness
constexpr double kEnd = 0.14;              // times start
constexpr double kDecaySteps = 600;        // from start to end
constexpr double kStepsAfterRetract = 20;  // that each request is expected to go on for
}  // namespace

NewTokenRatio::NewTokenRatio(double conservativeness)
    : start_(std::min(kStart * conservativeness, 1.0)), end_(start_ * kEnd), value_(start_) {}

void NewTokenRatio::decode_step() {
    value_ = std::max(value_ - (start_ - end_) / kDecaySteps, end_);
}

void NewTokenRatio::idle() { value_ = start_; }

void NewTokenRatio::retraction(int64_t num_output, int64_t max_new, int num_running) {
    const double expected = static_cast<double>(num_output) + kStepsAfterRetract * num_running;
    value_ = std::min(expected / static_cast<double>(max_new + 1), 1.0);
}

}  // namespace aerie::schedule
