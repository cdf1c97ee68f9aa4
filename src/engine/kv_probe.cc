#include "engine/kv_probe.h"

#include <algorithm>
#include <cstring>

#include "base/fault.h"
#include "base/hash.h"

namespace aerie::engine {
namespace {

std::byte* block_at(std::span<const transfer::Pool> pools, std::span<const int32_t> blocks,
                    size_t layer, size_t block) {
    const transfer::Pool& pool = pools[block % pools.size()];
    return pool.base + pool.offset(static_cast<int>(layer), blocks[block]);
}

}  // namespace

std::vector<uint64_t> hash_kv(std::span<const transfer::Pool> pools,
                              std::span<const int32_t> blocks, int num_tokens) {
    const transfer::Pool& pool = pools.front();
    std::vector<uint64_t> hashes(pool.num_layers, 0);
    for (size_t layer = 0; layer < hashes.size(); ++layer) {
        for (int first = 0; first < num_tokens; first += pool.page_size) {
            const int tokens = std::min(pool.page_size, num_tokens - first);
            hashes[layer] = hash_bytes(block_at(pools, blocks, layer, first / pool.page_size),
                                       tokens * pool.token_bytes, hashes[layer]);
        }
    }
    return hashes;
}

void plant_kv_fault(std::span<const transfer::Pool> pools, std::span<const int32_t> blocks) {
    const size_t bytes = pools.front().block_bytes();
    const auto num_layers = static_cast<size_t>(pools.front().num_layers);
    for (size_t layer = 0; layer < num_layers; ++layer) {
        if (fault_planted(Fault::kKvBlockZeroed) && !blocks.empty()) {
            std::memset(block_at(pools, blocks, layer, 0), 0, bytes);
        }
        if (fault_planted(Fault::kKvBlocksSwapped) && blocks.size() > 1) {
            std::byte* first = block_at(pools, blocks, layer, 0);
            std::swap_ranges(first, first + bytes, block_at(pools, blocks, layer, 1));
        }
    }
}

}  // namespace aerie::engine
