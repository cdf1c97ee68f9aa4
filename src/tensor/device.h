#pragma once

#include <cstdint>

namespace aerie {

// Where memory lies and work runs. Builds without CUDA have no card.
enum class Device : uint8_t { kCpu, kCuda };

}  // namespace aerie
