// The memory that KV transfers work on, and the header of their messages, for both sides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/fabric.h"

namespace aerie::transfer {

// One context-parallel rank's KV: [num_layers, num_blocks, page_size, token], one piece of memory and
// one region of the fabric. Both outlive the transfer: a peer may write what nobody reads any more until
// the region is revoked.
struct Pool {
    std::byte* base = nullptr;
    int num_layers = 0;
    int num_blocks = 0;
    int page_size = 0;       // tokens
    size_t token_bytes = 0;  // of one layer
    std::string key = {};    // of the region, for peers' attach()
    Device device = Device::kCpu;

    size_t block_bytes() const { return page_size * token_bytes; }
    size_t layer_bytes() const { return num_blocks * block_bytes(); }
    size_t num_bytes() const { return num_layers * layer_bytes(); }
    size_t offset(int layer, int block) const { return layer * layer_bytes() + block * block_bytes(); }
};

// A peer's pool, of the same layers and pages, that put() and get() can reach.
struct RemotePool {
    comm::RemoteRegion region;
    int num_blocks = 0;
    size_t block_bytes = 0;

    size_t layer_bytes() const { return num_blocks * block_bytes; }
    size_t offset(int layer, int block) const { return layer * layer_bytes() + block * block_bytes; }
};

// Prefills of one request, which are counted from 1. A message with a later one is dropped.
constexpr uint32_t kMaxAttempts = 1 << 16;

// Header of every message between the two sides; the payload is a proto::KvMessage.
struct KvHeader {
    uint64_t serial;   // tells the sender's messages apart
    int32_t replica;   // the sender's, among its role's
    uint32_t magic;    // kMagic
    static constexpr uint32_t kMagic = 0x4B56'0002;
};

}  // namespace aerie::transfer
