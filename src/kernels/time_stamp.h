// When the stream's work came to a place.
#pragma once

#include <cstdint>

#include "tensor/stream.h"

namespace aerie::kernels {

// *at = nanoseconds of the device's clock once all work before it is done. On a card `at` is the card's,
// and the clock moves in steps of up to a microsecond.
void time_stamp(Stream& stream, int64_t* at);

}  // namespace aerie::kernels
