#include "kernels/time_stamp.h"

#include <chrono>

#include "kernels/on_card.h"

namespace aerie::kernels {

void time_stamp(Stream& stream, int64_t* at) {
    ON_CARD(stream, time_stamp(stream, at));
    *at = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace aerie::kernels
