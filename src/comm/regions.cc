#include "comm/regions.h"

#include <cstring>

#include "comm/fabric.h"
#include "comm/ports.h"

#if defined(__SANITIZE_THREAD__)
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
#endif

namespace aerie::comm {

Status check_pieces(const RemoteRegion& region, std::span<const Piece> pieces) {
    for (size_t i = 0; i < pieces.size(); ++i) {
        const Piece& piece = pieces[i];
        if (piece.offset <= region.bytes && piece.bytes <= region.bytes - piece.offset) continue;
        return error(
            "piece {} of {}: {} bytes at offset {} of region {} of node-{}, which has {} bytes", i,
            pieces.size(), piece.bytes, piece.offset, region.id, region.node, region.bytes);
    }
    return {};
}

std::vector<Piece> joined(std::span<const Piece> pieces) {
    std::vector<Piece> out;
    for (const Piece& piece : pieces) {
        if (piece.bytes == 0) continue;
        if (!out.empty() && out.back().offset + out.back().bytes == piece.offset &&
            out.back().local + out.back().bytes == piece.local)
            out.back().bytes += piece.bytes;
        else
            out.push_back(piece);
    }
    return out;
}

uint64_t total_bytes(std::span<const Piece> pieces) {
    uint64_t total = 0;
    for (const Piece& piece : pieces) total += piece.bytes;
    return total;
}

Result<uint32_t> Regions::add(std::byte* base, size_t bytes, Device device) {
    if (base == nullptr || bytes == 0)
        return error("a region of {} bytes at {}, expected memory", bytes,
                     static_cast<const void*>(base));
    std::lock_guard lock(mutex_);
    Entry& entry = entries_[next_];
    entry.base = base;
    entry.bytes = bytes;
    entry.device = device;
    return next_++;
}

void Regions::shut(uint32_t id) {
    std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(id); found != entries_.end()) found->second.open = false;
}

bool Regions::drained(uint32_t id, double limit_s) {
    const std::atomic<int>* calls = nullptr;
    {
        std::lock_guard lock(mutex_);
        const auto found = entries_.find(id);
        if (found == entries_.end()) return true;
        calls = &found->second.calls;
    }
    if (!wait_for_zero(*calls, limit_s)) return false;
    std::lock_guard lock(mutex_);
    entries_.erase(id);
    return true;
}

std::byte* Regions::enter(uint32_t id, uint64_t offset, uint64_t bytes, Device device) {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end() || !found->second.open) return nullptr;
    Entry& entry = found->second;
    if (entry.device != device || offset > entry.bytes || bytes > entry.bytes - offset) return nullptr;
    entry.calls.fetch_add(1);
    return entry.base + offset;
}

void Regions::leave(uint32_t id) {
    std::lock_guard lock(mutex_);
    entries_.at(id).calls.fetch_sub(1);
}

void Regions::keep(uint32_t id, Buffer memory) {
    std::lock_guard lock(mutex_);
    entries_.at(id).memory = std::move(memory);
}

namespace {

// A get may read what its owner has begun to use again: who reads asks the owner afterwards, and drops
// what did not hold until then (transfer/decode_messages.cc). No finding of the race detector.
void read_region(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__SANITIZE_THREAD__)
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
#endif
    std::memcpy(to, from, bytes);
#if defined(__SANITIZE_THREAD__)
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
}

}  // namespace

void copy_on_card(card::Queue queue, Access access, std::byte* remote, const Piece& piece) {
    if (access == Access::kPut)
        card::copy(queue, remote, piece.local, piece.bytes);
    else
        card::copy(queue, piece.local, remote, piece.bytes);
}

namespace {

bool copy_cards_in_process(Regions& regions, Access access, const RemoteRegion& region,
                           std::span<const Piece> pieces, card::Queue queue) {
    int num_entered = 0;
    bool open = true;
    for (const Piece& piece : joined(pieces)) {
        std::byte* remote = regions.enter(region.id, piece.offset, piece.bytes, Device::kCuda);
        open = remote != nullptr;
        if (!open) break;
        ++num_entered;
        copy_on_card(queue, access, remote, piece);
    }
    if (num_entered > 0) card::synchronize(queue);
    for (; num_entered > 0; --num_entered) regions.leave(region.id);
    return open;
}

}  // namespace

bool copy_in_process(Regions& regions, Access access, const RemoteRegion& region,
                     std::span<const Piece> pieces, card::CopyQueue& queue) {
    if (region.device == Device::kCuda)
        return copy_cards_in_process(regions, access, region, pieces, queue.get());
    for (const Piece& piece : pieces) {
        if (piece.bytes == 0) continue;
        std::byte* remote = regions.enter(region.id, piece.offset, piece.bytes);
        if (remote == nullptr) return false;
        if (access == Access::kPut)
            std::memcpy(remote, piece.local, piece.bytes);
        else
            read_region(piece.local, remote, piece.bytes);
        regions.leave(region.id);
    }
    return true;
}

namespace {

struct KeyFrame {
    uint32_t backend;
    int32_t node;
    uint32_t epoch;
    uint32_t id;
    uint32_t device;
    uint64_t bytes;
};

}  // namespace

std::string pack_key(uint32_t backend, const KeyContent& content) {
    const KeyFrame frame{backend,    content.node,  content.epoch,
                         content.id, static_cast<uint32_t>(content.device), content.bytes};
    return std::string(reinterpret_cast<const char*>(&frame), sizeof(frame)) + content.extra;
}

Result<KeyContent> unpack_key(uint32_t backend, const std::string& key) {
    KeyFrame frame;
    if (key.size() < sizeof(frame) || key.size() > kMaxKeyBytes)
        return error("a region's key of {} bytes, expected {} to {}", key.size(), sizeof(frame),
                     kMaxKeyBytes);
    std::memcpy(&frame, key.data(), sizeof(frame));
    if (frame.backend != backend)
        return error("a region's key of another backend ({:#x}), expected {:#x}", frame.backend,
                     backend);
    if (frame.node < 0 || frame.node >= kMaxNodes || frame.epoch == 0 || frame.id == 0 ||
        frame.device > static_cast<uint32_t>(Device::kCuda))
        return error("a region's key names node {}, epoch {}, region {} and device {}", frame.node,
                     frame.epoch, frame.id, frame.device);
    return KeyContent{frame.node,  frame.epoch, frame.id,
                      frame.bytes, static_cast<Device>(frame.device), key.substr(sizeof(frame))};
}

Error not_attached(const RemoteRegion& region, uint32_t connected_epoch) {
    if (connected_epoch == region.epoch)
        return error("region {} of node-{} with epoch {} was attached over a connection that is lost",
                     region.id, region.node, region.epoch);
    if (connected_epoch == 0)
        return error("node-{} is not connected (region {} of its epoch {})", region.node, region.id,
                     region.epoch);
    return error("region {} of node-{} is of epoch {}, connected is epoch {}", region.id,
                 region.node, region.epoch, connected_epoch);
}

Error region_revoked(const RemoteRegion& region) {
    return error("region {} of node-{} with epoch {} has been revoked", region.id, region.node,
                 region.epoch);
}

}  // namespace aerie::comm
