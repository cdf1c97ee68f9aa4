// Regions: the memory that one host has registered for its peers. Shared by the backends; private
// to comm/. Any thread. Entering a region is a lock, a lookup and a count; for accesses of
// kilobytes and more.
#pragma once

#include <atomic>
#include <map>
#include <mutex>

#include "comm/remote_memory.h"
#include "tensor/buffer.h"
#include "tensor/card.h"

namespace aerie::comm {

class Regions {
  public:
    // Checks the memory; ids start at 1 and are never used twice.
    Result<uint32_t> add(std::byte* base, size_t bytes, Device device = Device::kCpu);
    // No enter() succeeds from now on.
    void shut(uint32_t id);
    // Waits until every enter() has been left, at most limit_s seconds; whether it has. Then the
    // region is forgotten.
    bool drained(uint32_t id, double limit_s);

    // Where the piece lies, to be accessed until leave(); nullptr where there is no such region on this
    // device or the piece is not in it: then no leave().
    std::byte* enter(uint32_t id, uint64_t offset, uint64_t bytes, Device device = Device::kCpu);
    void leave(uint32_t id);
    // The region's memory is to be freed with it.
    void keep(uint32_t id, Buffer memory);

  private:
    struct Entry {
        std::byte* base = nullptr;
        size_t bytes = 0;
        Device device = Device::kCpu;
        Buffer memory;
        bool open = true;
        std::atomic<int> calls{0};
    };
    mutable std::mutex mutex_;
    std::map<uint32_t, Entry> entries_;
    uint32_t next_ = 1;
};

// Copies the pieces on the calling thread, or on the queue where they are the card's, where both
// memories are of this process. False: the region is not open; then some may have been copied.
bool copy_in_process(Regions& regions, Access access, const RemoteRegion& region,
                     std::span<const Piece> pieces, card::CopyQueue& queue);
// Puts the copy of a piece of the card's memory on the queue.
void copy_on_card(card::Queue queue, Access access, std::byte* remote, const Piece& piece);

// What is in a region's key: the owner, the size, and what a backend adds.
struct KeyContent {
    int node;
    uint32_t epoch;
    uint32_t id;
    uint64_t bytes;
    Device device = Device::kCpu;
    std::string extra = {};
};
// backend: a word that tells keys of different backends apart.
std::string pack_key(uint32_t backend, const KeyContent& content);
Result<KeyContent> unpack_key(uint32_t backend, const std::string& key);

// The errors of a transfer, the same for every backend.
Error not_attached(const RemoteRegion& region, uint32_t connected_epoch);
Error region_revoked(const RemoteRegion& region);

}  // namespace aerie::comm
