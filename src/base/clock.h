// Time. Durations are double seconds where a person reads or sets them, time points are steady.
#pragma once

#include <chrono>

namespace aerie {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

inline double seconds_between(TimePoint from, TimePoint to) {
    return std::chrono::duration<double>(to - from).count();
}
inline double seconds_since(TimePoint from) { return seconds_between(from, Clock::now()); }
inline TimePoint after(double seconds) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                              std::chrono::duration<double>(seconds));
}

}  // namespace aerie
