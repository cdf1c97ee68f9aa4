// Hosts as objects of one process. A link is one direction of a pair; a send is an atomic load of
// the link, two counted calls (link and port) and the receiver's own work, all on the sender's
// thread.
#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "comm/fabric.h"
#include "comm/ports.h"
#include "comm/regions.h"

namespace aerie::comm {
namespace {

struct LocalHost;

struct Link {
    LocalHost* to;
    uint64_t number;
    std::atomic<bool> up{true};
    std::atomic<int> calls{0};  // sends that run
};

// One life of a host.
struct LocalHost {
    LocalHost(int node, uint32_t epoch) : node(node), epoch(epoch) {}

    const int node;
    const uint32_t epoch;
    Ports ports;
    Regions regions;
    bool alive = true;  // the rest: guarded by the network's mutex, but for loads of `links`
    std::array<std::atomic<Link*>, kMaxNodes> links{};  // to each connected peer
    std::array<uint32_t, kMaxNodes> fenced{};           // newest life of each that never comes back
    std::vector<std::function<void(int, uint32_t)>> listeners;

    void tell(int peer, uint32_t peer_epoch) const {
        for (const auto& listener : listeners) listener(peer, peer_epoch);
    }
};

// Beyond what any receiver takes. One that hangs is a bug that should be seen here and not as a
// thread that never ends.
constexpr double kReceiverLimitS = 60;

constexpr uint32_t kKeyOfLocal = 0x6c6f6361;  // "loca"

}  // namespace

// Keeps every life and every link until the end: a sender may look at one that is gone. Listeners
// are called under the mutex, which keeps their calls in the order of the changes.
class LocalNetwork {
  public:
    LocalHost* add(int node, uint32_t epoch) {
        std::lock_guard lock(mutex_);
        for (const auto& host : hosts_) {
            CHECK(host->node != node || host->epoch < epoch,
                  "node-{} starts with epoch {} after epoch {}", node, epoch, host->epoch);
        }
        auto& host = hosts_.emplace_back(new LocalHost(node, epoch));
        host->links[node] = add_link(host.get());
        return host.get();
    }

    void remove(LocalHost* host) {
        std::lock_guard lock(mutex_);
        host->alive = false;
        host->listeners.clear();
        for (int node = 0; node < kMaxNodes; ++node) disconnect(host, node);
        take_down(host->links[host->node].load());
    }

    Status connect(LocalHost* from, int node, uint32_t epoch) {
        std::lock_guard lock(mutex_);
        if (Link* link = from->links[node].load(); link && link->to->epoch == epoch) return {};
        if (epoch <= from->fenced[node])
            return error("node-{} with epoch {} has been dropped, expected an epoch above {}", node,
                         epoch, from->fenced[node]);
        LocalHost* to = find(node, epoch);
        if (to == nullptr)
            return error("no node-{} with epoch {} lives in this process", node, epoch);
        if (from->epoch <= to->fenced[from->node])
            return error("node-{} has dropped node-{} with epoch {}", node, from->node,
                         from->epoch);
        disconnect(from, node);
        disconnect(to, from->node);
        from->links[node] = add_link(to);
        to->links[from->node] = add_link(from);
        from->fenced[node] = epoch - 1;
        to->fenced[from->node] = from->epoch - 1;
        from->tell(node, epoch);
        to->tell(from->node, from->epoch);
        return {};
    }

    void drop(LocalHost* host, int node, uint32_t epoch) {
        std::lock_guard lock(mutex_);
        host->fenced[node] = std::max(host->fenced[node], epoch);
        const Link* link = host->links[node].load();
        if (link != nullptr && link->to->epoch <= epoch) disconnect(host, node);
    }

    void disconnect_from(LocalHost* host, int node, uint64_t connection) {
        std::lock_guard lock(mutex_);
        const Link* link = host->links[node].load();
        if (link != nullptr && link->number == connection) disconnect(host, node);
    }

    void listen(LocalHost* host, std::function<void(int, uint32_t)> listener) {
        std::lock_guard lock(mutex_);
        for (const auto& link : host->links) {
            const LocalHost* peer = link.load() ? link.load()->to : nullptr;
            if (peer != nullptr && peer != host) listener(peer->node, peer->epoch);
        }
        host->listeners.push_back(std::move(listener));
    }

  private:
    Link* add_link(LocalHost* to) {
        return links_.emplace_back(new Link{.to = to, .number = links_.size() + 1}).get();
    }

    LocalHost* find(int node, uint32_t epoch) {
        for (const auto& host : hosts_)
            if (host->alive && host->node == node && host->epoch == epoch) return host.get();
        return nullptr;
    }

    // Both directions, and both sides are told.
    void disconnect(LocalHost* host, int node) {
        Link* out = host->links[node].load();
        if (out == nullptr || out->to == host) return;
        LocalHost* peer = out->to;
        Link* back = peer->links[host->node].load();
        host->links[node] = nullptr;
        peer->links[host->node] = nullptr;
        take_down(out);
        take_down(back);
        host->tell(node, 0);
        peer->tell(host->node, 0);
    }

    static void take_down(Link* link) {
        link->up = false;
        const bool idle = wait_for_zero(link->calls, kReceiverLimitS);
        CHECK(idle, "a receiver of node-{} has not returned for {} s", link->to->node,
              kReceiverLimitS);
    }

    std::mutex mutex_;
    std::vector<std::unique_ptr<LocalHost>> hosts_;
    std::vector<std::unique_ptr<Link>> links_;
};

namespace {

class LocalFabric final : public Fabric {
  public:
    LocalFabric(std::shared_ptr<LocalNetwork> network, int node, uint32_t epoch)
        : network_(std::move(network)), host_(network_->add(node, epoch)) {}
    ~LocalFabric() override { network_->remove(host_); }

    int node() const override { return host_->node; }
    uint32_t epoch() const override { return host_->epoch; }
    std::string address() const override { return fmt::format("local:{}", host_->node); }

    void open(int port, Receiver* receiver) override { host_->ports.open(port, receiver); }

    void close(int port) override {
        host_->ports.shut(port);
        const bool idle = host_->ports.drained(port, kReceiverLimitS);
        CHECK(idle, "the receiver of port {} has not returned for {} s", port, kReceiverLimitS);
    }

    Status send(Destination to, const Message& message) override {
        CHECK(message.header_bytes <= kMaxHeaderBytes, "header of {} bytes", message.header_bytes);
        Link* link = link_to(to.node);
        if (link == nullptr) return not_connected(to);
        link->calls.fetch_add(1);
        const bool up = link->up.load();
        if (up) {
            const Incoming incoming{host_->node, host_->epoch,
                                    static_cast<const std::byte*>(message.header),
                                    message.header_bytes, message.payload_bytes};
            deliver_in_process(link->to->ports, to.port, incoming, message.payload, message.kind);
        }
        link->calls.fetch_sub(1);
        if (!up) return not_connected(to);
        return {};
    }

    Status set_peer(int node, uint32_t epoch, const std::string& address) override {
        if (node < 0 || node >= kMaxNodes)
            return error("peer node {}, expected 0 to {}", node, kMaxNodes - 1);
        if (node == host_->node) return {};
        if (const auto expected = fmt::format("local:{}", node); address != expected)
            return error("address of node-{} is '{}', expected '{}'", node, address, expected);
        return network_->connect(host_, node, epoch);
    }

    void drop_peer(int node, uint32_t epoch) override {
        if (node >= 0 && node < kMaxNodes && node != host_->node)
            network_->drop(host_, node, epoch);
    }

    void disconnect(int node, uint64_t connection) override {
        if (node >= 0 && node < kMaxNodes) network_->disconnect_from(host_, node, connection);
    }

    uint32_t peer_epoch(int node) const override {
        const Link* link = link_to(node);
        return link ? link->to->epoch : 0;
    }
    uint64_t peer_connection(int node) const override {
        const Link* link = link_to(node);
        return link ? link->number : 0;
    }

    void on_peer_change(std::function<void(int, uint32_t)> listener) override {
        network_->listen(host_, std::move(listener));
    }

    Result<OwnRegion> register_memory(std::byte* base, size_t bytes) override {
        auto id = host_->regions.add(base, bytes);
        if (!id) return id.error();
        return OwnRegion{*id, base, key_of(*id, bytes, Device::kCpu)};
    }

    Result<OwnRegion> allocate_memory(size_t bytes, Device device) override {
        Buffer memory(bytes, device);
        auto* const base = memory.as<std::byte>();
        auto id = host_->regions.add(base, bytes, device);
        if (!id) return id.error();
        host_->regions.keep(*id, std::move(memory));
        return OwnRegion{*id, base, key_of(*id, bytes, device)};
    }

    void revoke(uint32_t region_id) override {
        host_->regions.shut(region_id);
        const bool idle = host_->regions.drained(region_id, kReceiverLimitS);
        CHECK(idle, "a copy of region {} has not ended for {} s", region_id, kReceiverLimitS);
    }

    Result<RemoteRegion> attach(const std::string& key) override {
        auto content = unpack_key(kKeyOfLocal, key);
        if (!content) return content.error();
        RemoteRegion region{.node = content->node,
                            .epoch = content->epoch,
                            .id = content->id,
                            .bytes = content->bytes,
                            .device = content->device};
        const Link* link = link_to(region.node);
        if (link == nullptr || link->to->epoch != region.epoch)
            return not_attached(region, link == nullptr ? 0 : link->to->epoch);
        region.connection = link->number;
        region.mapped = true;
        return region;
    }

    Status transfer(Access access, const RemoteRegion& region, std::span<const Piece> pieces,
                    TransferDone done) override {
        Link* link = link_to(region.node);
        if (link == nullptr || link->number != region.connection)
            return not_attached(region, link == nullptr ? 0 : link->to->epoch);
        RETURN_IF_ERROR(check_pieces(region, pieces));
        link->calls.fetch_add(1);
        const bool up = link->up.load();
        const bool copied = up && copy_in_process(link->to->regions, access, region, pieces, queue_);
        link->calls.fetch_sub(1);
        if (!up) return not_attached(region, 0);
        done(copied ? Status() : region_revoked(region));
        return {};
    }

  private:
    Link* link_to(int node) const {
        return node >= 0 && node < kMaxNodes ? host_->links[node].load() : nullptr;
    }
    std::string key_of(uint32_t region, size_t bytes, Device device) const {
        return pack_key(kKeyOfLocal, {node(), epoch(), region, bytes, device});
    }
    Error not_connected(Destination to) const {
        return error("node-{} is not connected to node-{} (message for port {})", host_->node,
                     to.node, to.port);
    }

    const std::shared_ptr<LocalNetwork> network_;
    LocalHost* const host_;
    card::CopyQueue queue_;
};

}  // namespace

std::shared_ptr<LocalNetwork> make_local_network() { return std::make_shared<LocalNetwork>(); }

std::unique_ptr<Fabric> make_local_fabric(std::shared_ptr<LocalNetwork> network, int node,
                                          uint32_t epoch) {
    CHECK(node >= 0 && node < kMaxNodes && epoch > 0, "node {} epoch {}", node, epoch);
    return std::make_unique<LocalFabric>(std::move(network), node, epoch);
}

}  // namespace aerie::comm
