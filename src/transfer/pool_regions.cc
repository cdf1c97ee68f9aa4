#include "transfer/pool_regions.h"

#include "base/check.h"
#include "proto/kv.pb.h"

namespace aerie::transfer {
namespace {

constexpr int kMaxCp = 1024;

Result<RemotePool> attach_pool(comm::Fabric& fabric, const proto::KvPool& pool, const Pool& ours) {
    if (pool.num_layers() != ours.num_layers || pool.page_size() != ours.page_size ||
        pool.token_bytes() != ours.token_bytes || pool.num_blocks() <= 0) {
        return error("a peer's KV pool has {} layers, {} blocks, pages of {} tokens and {} bytes a token; "
                     "expected {} layers, pages of {} tokens and {} bytes a token",
                     pool.num_layers(), pool.num_blocks(), pool.page_size(), pool.token_bytes(),
                     ours.num_layers, ours.page_size, ours.token_bytes);
    }
    auto region = fabric.attach(pool.key());
    if (!region) return region.error();
    RemotePool remote{.region = *region, .num_blocks = pool.num_blocks(), .block_bytes = ours.block_bytes()};
    if (const size_t expected = ours.num_layers * remote.layer_bytes(); region->bytes != expected) {
        return error("a peer's KV pool has {} bytes, expected {}", region->bytes, expected);
    }
    return remote;
}

}  // namespace

PoolRegions::PoolRegions(std::vector<Pool> pools) : pools_(std::move(pools)) {
    CHECK(!pools_.empty(), "no KV pool");
    for (const Pool& pool : pools_) CHECK(!pool.key.empty(), "a KV pool that is no region");
}

void PoolRegions::describe(proto::KvBlocks& into) const {
    for (const Pool& own : pools_) {
        proto::KvPool& pool = *into.add_pools();
        pool.set_key(own.key);
        pool.set_num_layers(own.num_layers);
        pool.set_num_blocks(own.num_blocks);
        pool.set_page_size(own.page_size);
        pool.set_token_bytes(static_cast<uint32_t>(own.token_bytes));
    }
}

Result<RemoteBlocks> attach(comm::Fabric& fabric, const proto::KvBlocks& blocks, int num_blocks,
                            const Pool& ours) {
    const int first = blocks.first_block();
    if (first < 0 || first > num_blocks || blocks.blocks_size() < num_blocks - first) {
        return error("a peer names {} blocks from block {} on, expected those up to {}",
                     blocks.blocks_size(), first, num_blocks);
    }
    if (blocks.pools_size() < 1 || blocks.pools_size() > kMaxCp) {
        return error("a peer has {} KV pools, expected 1 to {}", blocks.pools_size(), kMaxCp);
    }
    RemoteBlocks remote{.first_block = first, .blocks = {}, .pools = {}};
    for (const auto& pool : blocks.pools()) {
        auto attached = attach_pool(fabric, pool, ours);
        if (!attached) return attached.error();
        remote.pools.push_back(*attached);
    }
    remote.blocks.assign(blocks.blocks().begin(), blocks.blocks().begin() + (num_blocks - first));
    for (int b = first; b < num_blocks; ++b) {
        const int32_t number = remote.blocks[b - first];
        const int most = remote.pools[b % remote.pools.size()].num_blocks;
        if (number < 0 || number >= most) {
            return error("a peer names block {} of a pool of {}", number, most);
        }
    }
    return remote;
}

}  // namespace aerie::transfer
