#pragma once

namespace aerie::cache {

// What a step waits for when pages move between the tiers, by the clock: the median of a page's copy
// to host memory, of its write to a file in `folder` and of its read, of DeepSeek-V3 and the demo.
void measure_file_tier(const char* folder);

}  // namespace aerie::cache
