// One-sided access of the UCX fabric.
#include "base/check.h"
#include "comm/ucx/ucx_fabric.h"

namespace aerie::comm {
namespace {

constexpr uint32_t kKeyOfUcx = 0x75637870;  // "ucxp"
constexpr double kCopyLimitS = 60;

}  // namespace

Result<OwnRegion> UcxFabric::register_memory(std::byte* base, size_t bytes) {
    auto id = regions_.add(base, bytes);
    if (!id) return id.error();
    return OwnRegion{*id, pack_key(kKeyOfUcx, {node(), epoch(), *id, 0, bytes, ""})};
}

void UcxFabric::revoke(uint32_t region_id) {
    regions_.shut(region_id);
    const bool idle = regions_.drained(region_id, kCopyLimitS);
    CHECK(idle, "a copy of region {} has not ended for {} s", region_id, kCopyLimitS);
}

Result<RemoteRegion> UcxFabric::attach(const std::string& key) {
    auto content = unpack_key(kKeyOfUcx, key);
    if (!content) return content.error();
    const RemoteRegion region{content->node, content->epoch, content->id, content->bytes};
    if (const uint32_t now = peer_epoch(region.node); now != region.epoch)
        return not_attached(region, now);
    if (region.node != node())
        return error("region {} of node-{}: access between processes is not built", region.id,
                     region.node);
    return region;
}

Status UcxFabric::transfer(Access access, const RemoteRegion& region, std::span<const Piece> pieces,
                           TransferDone done) {
    if (region.node != node() || region.epoch != epoch())
        return not_attached(region, peer_epoch(region.node));
    RETURN_IF_ERROR(check_pieces(region, pieces));
    const bool copied = copy_in_process(regions_, access, region, pieces);
    done(copied ? Status() : region_revoked(region));
    return {};
}

}  // namespace aerie::comm
