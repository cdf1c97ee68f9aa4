// Test hooks on the KV of one sequence. Leader thread, while nobody writes its blocks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transfer/layout.h"

namespace aerie::engine {

// pools: [cp]; blocks: of the sequence, block b in pool b mod cp.

// One hash a layer, of the KV of tokens 0 … num_tokens - 1 in sequence order: the same wherever
// their blocks lie.
std::vector<uint64_t> hash_kv(std::span<const transfer::Pool> pools,
                              std::span<const int32_t> blocks, int num_tokens);

// Damages the KV as the planted fault of base/fault.h wants it, if one is planted that does.
void plant_kv_fault(std::span<const transfer::Pool> pools, std::span<const int32_t> blocks);

}  // namespace aerie::engine
