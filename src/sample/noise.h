// The random numbers of sampling: a function of (seed, choice, position, token id), not a stream.
// So a draw depends neither on the batch nor on what was drawn before; a position that is computed
// again draws the same; and a draft and its check draw with the same noise.
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "kernels/draw_math.h"

namespace aerie::sample {

struct NoiseKey {
    uint64_t seed;
    int choice;
    int64_t position;  // of the token that is drawn, in the sequence (prompt and output)
};

// One number for all ids of a position; noise_bits() makes each id's from it.
inline uint64_t noise_base(const NoiseKey& key) {
    uint64_t h = mix64(key.seed + 0x9e3779b97f4a7c15u);
    h = mix64(h ^ (static_cast<uint64_t>(key.choice) + 0xd1b54a32d192ed03u));
    return mix64(h ^ (static_cast<uint64_t>(key.position) + 0x8cb92ba72f3d8dd7u));
}

using kernels::noise_bits;
using kernels::noise_uniform;

// Standard Gumbel noise of an id: -log(-log(u)).
double gumbel(const NoiseKey& key, int32_t id);

}  // namespace aerie::sample
