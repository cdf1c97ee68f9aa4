// For tests: KV pools of a few kilobytes, and what they hold after a transfer.
#pragma once

#include <vector>

#include "base/check.h"
#include "transfer/layout.h"

namespace aerie::transfer {

inline constexpr int kPage = 4;
inline constexpr int kLayers = 3;
inline constexpr int kBlocks = 16;
inline constexpr size_t kTokenBytes = 8;

using Memory = std::vector<std::vector<std::byte>>;  // [cp]

inline Memory memory(int cp, int seed) {
    Memory result(cp);
    for (int c = 0; c < cp; ++c)
        for (size_t i = 0; i < kLayers * kBlocks * kPage * kTokenBytes; ++i)
            result[c].push_back(static_cast<std::byte>(seed + c * 7 + i * 31 % 97));
    return result;
}

// Regions of the fabric, which goes before the memory.
inline std::vector<Pool> pools(comm::Fabric& fabric, Memory& memory) {
    std::vector<Pool> result;
    for (auto& bytes : memory) {
        auto region = fabric.register_memory(bytes.data(), bytes.size());
        CHECK(region.ok(), "{}", region.message());
        result.push_back({bytes.data(), kLayers, kBlocks, kPage, kTokenBytes, region->key});
    }
    return result;
}

// What `before` becomes when tokens [begin, end) of a sequence come from the blocks from[] of
// `source` into the blocks to[].
inline Memory arrived(const Memory& source, const std::vector<int32_t>& from, Memory before,
                      const std::vector<int32_t>& to, int begin, int end) {
    const Pool shape{nullptr, kLayers, kBlocks, kPage, kTokenBytes, {}};
    for (int layer = 0; layer < kLayers; ++layer) {
        for (int t = begin; t < end; ++t) {
            const size_t b = static_cast<size_t>(t) / kPage;
            for (size_t i = 0; i < kTokenBytes; ++i) {
                const size_t at = t % kPage * kTokenBytes + i;
                before[b % before.size()][shape.offset(layer, to[b]) + at] =
                    source[b % source.size()][shape.offset(layer, from[b]) + at];
            }
        }
    }
    return before;
}

}  // namespace aerie::transfer
