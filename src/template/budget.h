// The steps that the rendering on this thread has left.
#pragma once

#include <cstddef>

#include "template/failure.h"
#include "template/limits.h"

namespace aerie::jinja {

// Sets a full budget for the calling thread while it lives.
class BudgetScope {
  public:
    BudgetScope() : before_(left()) { left() = kMaxSteps; }
    ~BudgetScope() { left() = before_; }
    BudgetScope(const BudgetScope&) = delete;
    BudgetScope& operator=(const BudgetScope&) = delete;

    static int64_t& left() {
        thread_local int64_t steps = kMaxSteps;
        return steps;
    }

  private:
    int64_t before_;
};

// Throws Failure where the budget is used up.
inline void charge(size_t steps) {
    BudgetScope::left() -= static_cast<int64_t>(steps);
    if (BudgetScope::left() < 0) fail("rendering takes more than {} steps", kMaxSteps);
}
inline void charge_bytes(size_t num_bytes) {
    if (num_bytes > kMaxStringBytes) fail("a text longer than {} bytes", kMaxStringBytes);
    charge(1 + num_bytes / 64);
}

}  // namespace aerie::jinja
