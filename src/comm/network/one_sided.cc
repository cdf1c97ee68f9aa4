// One-sided access of the network fabric: by copying where the peer's region is mapped here, by
// messages otherwise.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "comm/network/network_fabric.h"

namespace aerie::comm {
namespace {

constexpr uint32_t kKeyOfNetwork = 0x6e657477;  // "netw"
constexpr size_t kPageBytes = 4096;
// Copied in one go; then the loss of the peer is looked for.
constexpr size_t kStrideBytes = 1 << 20;

// Behind a region that peers may map: the word by which its owner tells them that it is revoked.
size_t word_offset(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }
std::atomic<uint32_t>& revoked_word(std::byte* base, size_t bytes) {
    static_assert(std::atomic<uint32_t>::is_always_lock_free);
    return *reinterpret_cast<std::atomic<uint32_t>*>(base + word_offset(bytes));
}

Status copy_card(const Pair& pair, Access access, const RemoteRegion& region, std::byte* base,
                 std::span<const Piece> pieces, card::Queue queue) {
    for (const Piece& piece : joined(pieces))
        copy_on_card(queue, access, base + piece.offset, piece);
    card::synchronize(queue);
    return pair.lost ? Status(not_attached(region, 0)) : Status();
}

void copy(Access access, std::byte* remote, std::byte* local, size_t bytes) {
    if (access == Access::kPut)
        std::memcpy(remote, local, bytes);
    else
        std::memcpy(local, remote, bytes);
}

Status copy_mapped(const Pair& pair, Access access, const RemoteRegion& region, std::byte* base,
                   std::span<const Piece> pieces) {
    const std::atomic<uint32_t>& revoked = revoked_word(base, region.bytes);
    for (const Piece& piece : pieces) {
        for (size_t at = 0; at < piece.bytes; at += kStrideBytes) {
            if (pair.lost) return not_attached(region, 0);
            if (revoked.load() != 0) return region_revoked(region);
            copy(access, base + piece.offset + at, piece.local + at,
                 std::min(kStrideBytes, piece.bytes - at));
        }
    }
    if (revoked.load() != 0) return region_revoked(region);
    return {};
}

}  // namespace

Result<OwnRegion> NetworkFabric::register_memory(std::byte* base, size_t bytes) {
    auto id = regions_.add(base, bytes);
    if (!id) return id.error();
    return OwnRegion{*id, base, pack_key(kKeyOfNetwork, {node(), epoch(), *id, bytes})};
}

Result<OwnRegion> NetworkFabric::allocate_on_card(size_t bytes) {
    Buffer memory(bytes, Device::kCuda);
    auto* const base = memory.as<std::byte>();
    auto id = regions_.add(base, bytes, Device::kCuda);
    if (!id) return id.error();
    ever_on_card_ = true;
    const std::string shared = card::share(base);
    std::lock_guard lock(memory_mutex_);
    on_card_.push_back(std::move(memory));
    return OwnRegion{*id, base, pack_key(kKeyOfNetwork, {node(), epoch(), *id, bytes,
                                                         Device::kCuda, shared})};
}

Result<OwnRegion> NetworkFabric::allocate_memory(size_t bytes, Device device) {
    if (bytes == 0) return error("a region of 0 bytes, expected memory");
    if (device == Device::kCuda) return allocate_on_card(bytes);
    auto memory = network_->allocate(word_offset(bytes) + kPageBytes);
    if (!memory)  // a limit of the machine's; all works without
        log_warning("peers of this machine go by messages: {}", memory.message());
    if (!memory || memory->base == nullptr) {
        Buffer buffer(bytes);
        auto own = register_memory(buffer.as<std::byte>(), bytes);
        if (own) regions_.keep(own->id, std::move(buffer));
        return own;
    }
    auto own = register_memory(memory->base, bytes);
    if (!own) return own;
    own->key = pack_key(kKeyOfNetwork, {node(), epoch(), own->id, bytes, Device::kCpu,
                                        memory->extra});
    std::lock_guard lock(memory_mutex_);
    mappable_[own->id] = {memory->base, bytes};
    ever_mappable_ = true;
    return own;
}

void NetworkFabric::revoke(uint32_t region_id) {
    std::byte* base = nullptr;
    {
        std::lock_guard lock(memory_mutex_);
        if (const auto found = mappable_.find(region_id); found != mappable_.end()) {
            base = found->second.base;
            revoked_word(base, found->second.bytes) = 1;
            mappable_.erase(found);
        }
    }
    remote_.revoke(region_id);
    if (base != nullptr) network_->free(base);
}

Result<RemoteRegion> NetworkFabric::attach(const std::string& key) {
    auto content = unpack_key(kKeyOfNetwork, key);
    if (!content) return content.error();
    RemoteRegion region{.node = content->node,
                        .epoch = content->epoch,
                        .id = content->id,
                        .bytes = content->bytes,
                        .device = content->device};
    if (region.node == node()) {
        if (region.epoch != epoch()) return not_attached(region, epoch());
        region.connection = peer_connection(node());
        region.mapped = true;
        return region;
    }
    Slot& slot = slots_[region.node];
    std::lock_guard lock(slot.mutex);
    if (slot.pair == nullptr || slot.epoch != region.epoch) return not_attached(region, slot.epoch);
    if (!content->extra.empty() || region.device == Device::kCuda)
        RETURN_IF_ERROR(map_region(slot, *content, region));
    region.connection = slot.number;
    return region;
}

// With the slot's lock held.
Status NetworkFabric::map_region(Slot& slot, const KeyContent& content, RemoteRegion& region) {
    const auto [place, fresh] = slot.mapped.try_emplace(region.id);
    Slot::Mapped& mapped = place->second;
    if (fresh && region.device == Device::kCuda) {
        // Whose process cannot be seen to end might go on writing after it.
        if (card::count() > 0 && slot.watched) mapped.card = card::Imported(content.extra);
        mapped.base = static_cast<std::byte*>(mapped.card.memory());
    } else if (fresh) {
        mapped.base = slot.pair->map(content);
    }
    region.mapped = mapped.base != nullptr;
    if (fresh)
        log_debug("region {} of node-{}: {} bytes, {}", region.id, region.node, region.bytes,
                  region.mapped ? "mapped" : "by messages");
    if (!region.mapped && region.device == Device::kCuda)
        return error("region {} of node-{} is memory of a card that this host cannot reach; expected "
                     "hosts of one machine that share a card and see each other's processes",
                     region.id, region.node);
    return {};
}

Status NetworkFabric::transfer(Access access, const RemoteRegion& region,
                               std::span<const Piece> pieces, TransferDone done) {
    if (!is_node(region.node)) return not_attached(region, 0);
    if (peer_connection(region.node) != region.connection)
        return not_attached(region, peer_epoch(region.node));
    RETURN_IF_ERROR(check_pieces(region, pieces));
    if (region.node == node()) {
        const bool copied = copy_in_process(regions_, access, region, pieces, queue_);
        done(copied ? Status() : region_revoked(region));
        return {};
    }
    Slot& slot = slots_[region.node];
    Pair* pair = nullptr;
    std::byte* base = nullptr;
    {
        std::lock_guard lock(slot.mutex);
        if (slot.pair == nullptr || slot.number != region.connection)
            return not_attached(region, slot.epoch);
        const auto found = slot.mapped.find(region.id);
        if (found != slot.mapped.end() && found->second.base != nullptr) {
            base = found->second.base;
            pair = slot.pair.get();
            pair->accesses.fetch_add(1);  // it stays until this is counted down
        }
    }
    if (pair == nullptr) return remote_.start(access, region, pieces, std::move(done));
    Status copied = region.device == Device::kCuda
                        ? copy_card(*pair, access, region, base, pieces, queue_.get())
                        : copy_mapped(*pair, access, region, base, pieces);
    pair->accesses.fetch_sub(1);
    done(std::move(copied));
    return {};
}

}  // namespace aerie::comm
