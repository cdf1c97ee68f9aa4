#include "engine/kv_probe.h"

#include <algorithm>
#include <cstring>

#include "base/fault.h"
#include "base/hash.h"
#include "tensor/card.h"

namespace aerie::engine {
namespace {

std::byte* address_of(std::span<const transfer::Pool> pools, std::span<const int32_t> blocks,
                    size_t layer, size_t block) {
    const transfer::Pool& pool = pools[block % pools.size()];
    return pool.base + pool.offset(static_cast<int>(layer), blocks[block]);
}

// The block where the host can work on it: on a CPU itself.
class HostBlock {
  public:
    HostBlock(std::span<const transfer::Pool> pools, std::span<const int32_t> blocks, size_t layer,
              size_t block)
        : at_(address_of(pools, blocks, layer, block)) {
        if (pools.front().device == Device::kCpu) return;
        copy_.resize(pools.front().block_bytes());
        card::copy_now(copy_.data(), at_, copy_.size());
    }
    std::byte* data() { return copy_.empty() ? at_ : copy_.data(); }
    void write_back() const {
        if (!copy_.empty()) card::copy_now(at_, copy_.data(), copy_.size());
    }

  private:
    std::byte* const at_;
    std::vector<std::byte> copy_;
};

}  // namespace

std::vector<uint64_t> hash_kv(std::span<const transfer::Pool> pools,
                              std::span<const int32_t> blocks, int num_tokens) {
    const transfer::Pool& pool = pools.front();
    std::vector<uint64_t> hashes(pool.num_layers, 0);
    for (size_t layer = 0; layer < hashes.size(); ++layer) {
        for (int first = 0; first < num_tokens; first += pool.page_size) {
            const int tokens = std::min(pool.page_size, num_tokens - first);
            HostBlock block(pools, blocks, layer, first / pool.page_size);
            hashes[layer] =
                hash_bytes(block.data(), tokens * pool.token_bytes, hashes[layer]);
        }
    }
    return hashes;
}

void plant_kv_fault(std::span<const transfer::Pool> pools, std::span<const int32_t> blocks) {
    const size_t bytes = pools.front().block_bytes();
    const auto num_layers = static_cast<size_t>(pools.front().num_layers);
    for (size_t layer = 0; layer < num_layers; ++layer) {
        if (fault_planted(Fault::kKvBlockZeroed) && !blocks.empty()) {
            HostBlock block(pools, blocks, layer, 0);
            std::memset(block.data(), 0, bytes);
            block.write_back();
        }
        if (fault_planted(Fault::kKvBlocksSwapped) && blocks.size() > 1) {
            HostBlock first(pools, blocks, layer, 0), second(pools, blocks, layer, 1);
            std::swap_ranges(first.data(), first.data() + bytes, second.data());
            first.write_back();
            second.write_back();
        }
    }
}

}  // namespace aerie::engine
