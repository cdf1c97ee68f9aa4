// Race: the argmax of logit/temperature + Gumbel noise over many ids, at the price of a hash for
// most of them: two logarithms are taken only for an id that can still win. The result is exactly
// that of evaluating gumbel() for each id.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "sample/noise.h"

namespace aerie::sample {

class Race {
  public:
    // `favourite` has the largest logit; the others' are given relative to it.
    Race(const NoiseKey& key, int32_t favourite)
        : base_(noise_base(key)), winner_(favourite), best_(score(favourite, 0)) {
        set_limit();
    }

    // gap: (logit - largest logit) / temperature, <= 0, may be -infinity.
    void enter(int32_t id, double gap) {
        // The noise must exceed best - gap. With u = exp(-exp(-noise)) and 1 - u <= -log(u) that
        // needs 1 - u < exp(gap - best) = 2^y.
        const float y = static_cast<float>(gap) * kLog2E - limit_;
        if (y < -54.0f) return;  // 1 - u is at least 2^-53
        const uint64_t bits = noise_bits(base_, id);
        if (y < 0.0f) {
            // 2^y <= (1 + fraction) · 2^floor, which are the bits of a float counted up; the factor
            // covers what the float arithmetic above has rounded.
            const float power = std::bit_cast<float>(static_cast<int32_t>((y + 127.0f) * 0x1p23f));
            const float rest = static_cast<float>(~bits >> 12) * 0x1p-52f;
            if (rest > power * 1.001f) return;
        }
        const double s = score(id, gap);
        if (s > best_ || (s == best_ && id < winner_)) {
            best_ = s;
            winner_ = id;
            set_limit();
        }
    }

    int32_t winner() const { return winner_; }

  private:
    static constexpr float kLog2E = 1.44269504f;

    double score(int32_t id, double gap) const {
        return gap - std::log(-std::log(noise_uniform(noise_bits(base_, id))));
    }
    void set_limit() { limit_ = static_cast<float>(best_) * kLog2E - 1e-4f; }

    uint64_t base_;
    int32_t winner_;
    double best_;
    float limit_ = 0;  // best · log2(e), rounded down
};

}  // namespace aerie::sample
