#pragma once

#include <cstdint>

namespace aerie {

// What a microbatch is part of: decode goes first at the experts.
enum class Phase : uint8_t { kPrefill = 0, kDecode = 1 };

}  // namespace aerie
