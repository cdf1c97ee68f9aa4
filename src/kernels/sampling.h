// Tokens drawn where the logits are. Of a card alone: on a CPU sample/ draws.
#pragma once

#include <cstdint>
#include <limits>

#include "tensor/stream.h"
#include "tensor/view.h"

namespace aerie::kernels {

// How a row's token is drawn: as sample::Sampler draws one that has neither penalties nor bias nor a
// mask. Plain data, read on the card when the work comes to it, so that a graph's step has its own.
struct DrawParams {
    uint64_t noise_base = 0;  // sample::noise_base() of seed, choice and position
    double inverse_temperature = 0;  // 0: the largest logit, of several the lowest id
    double top_p = 1;  // at least 0; from 1 on: all
    double least_gap = -std::numeric_limits<double>::infinity();  // log(min_p)
    int32_t top_k = 0;     // 0: all
    int32_t num_ids = 0;   // ids from here on are never drawn; 0: nothing is drawn from this row
};

// The token, and its logit: that tells what else there may be. NaN or +infinity: `id` is the first that
// has such a logit, and no token is drawn. -infinity: no id is left to be drawn.
struct Drawn {
    int32_t id = -1;
    float logit = 0;
};

inline constexpr int kMaxDrawIds = 262'000;

// drawn[row] of logits[row] by params[row]. What is drawn is what Sampler draws, on any card and in
// any batch, but that the two may take logarithms whose last bits differ: another token comes of it
// where two ids' scores are equal but for these, once in some 10^14 draws.
struct DrawArgs {
    ConstView logits;                    // [rows, vocab_size] float32, vocab_size <= kMaxDrawIds
    const DrawParams* params = nullptr;  // [rows] of the card
    Drawn* drawn = nullptr;              // [rows] of the card; untouched where nothing is drawn
};
void draw(Stream& stream, const DrawArgs& args);

}  // namespace aerie::kernels
