// DraftLength: how many tokens to draft for one request. Pure: counts in, a number out.
//
// A decode step takes about a + b·rows: a reads the weights, b computes a row. A draft adds a row to
// a step of n requests, and a pass of the MTP layer, which is the part `layer_share` of a step. If it
// is accepted, it saves the request's part of a step, a/n + b. So it pays where it is accepted with a
// probability of at least
//     price = 1 / (free_rows/n + 1) + layer_share,     free_rows = a/b.
// The d-th draft of a step counts only where those before it were accepted, so what is compared with
// the price is the product of the rates up to d.
#pragma once

#include <algorithm>

namespace aerie::schedule {

inline constexpr int kMaxDrafts = 4;

struct DraftCost {
    double free_rows = 1;    // > 0
    double layer_share = 0;  // MTP layer / all layers
    double price(int num_requests) const {
        return 1 / (free_rows / std::max(num_requests, 1) + 1) + layer_share;
    }
};

class DraftLength {
  public:
    // A step has checked `drafts` of them, of which the first `accepted` were right.
    void checked(int drafts, int accepted) {
        for (int d = 0; d < kMaxDrafts; ++d) {
            if (d < accepted) rate_[d] += kLearned * (1 - rate_[d]);
            else if (d == accepted && d < drafts) rate_[d] -= kLearned * rate_[d];
            // Not tried: it is believed in a little more each time, until it is tried again.
            else if (d >= drafts) rate_[d] += kForgotten * (1 - rate_[d]);
        }
    }
    // At most `most`, for a step of num_requests.
    int next(int most, const DraftCost& cost, int num_requests) const {
        const double price = cost.price(num_requests);
        double likely = 1;
        for (int d = 0; d < std::min(most, kMaxDrafts); ++d) {
            likely *= rate_[d];
            if (likely < price) return d;
        }
        return std::min(most, kMaxDrafts);
    }

  private:
    static constexpr double kLearned = 0.2, kForgotten = 0.02;
    double rate_[kMaxDrafts] = {0.95, 0.95, 0.95, 0.95};
};

}  // namespace aerie::schedule
