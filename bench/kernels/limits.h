// What this machine can do, measured in the same run as what is compared with it.
#pragma once

#include "tensor/stream.h"

namespace aerie::bench {

// a = b + s·c over arrays far larger than the near caches; bytes/s, counting 3 arrays.
double triad_bandwidth(Stream& stream);
// Bytes/s of one thread reading num_bytes again and again.
double read_bandwidth(Stream& stream, size_t num_bytes);
// bfloat16 FLOP/s of one thread's tile unit without memory; 0 where there is none.
double amx_peak();

}  // namespace aerie::bench
