// NewTokenRatio: which part of the running requests' remaining tokens admission keeps free. Falls
// while decoding goes well, rises with each retraction. SGLang's rule and numbers.
#pragma once

#include <cstdint>

namespace aerie::schedule {

class NewTokenRatio {
  public:
    explicit NewTokenRatio(double conservativeness);  // > 0

    double value() const { return value_; }
    void decode_step();  // one without retraction
    void idle();         // nothing runs and nothing waits: start again
    // Those that stay have this many output tokens of at most max_new: expect each to go on for a
    // while.
    void retraction(int64_t num_output, int64_t max_new, int num_running);

  private:
    double start_;
    double end_;
    double value_;
};

}  // namespace aerie::schedule
