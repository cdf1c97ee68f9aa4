// Exchange and KV over fabrics of their own, so that neither waits behind the other.
#include <array>
#include <charconv>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "comm/fabric.h"
#include "comm/port_numbers.h"

namespace aerie::comm {
namespace {

class SplitFabric final : public Fabric {
  public:
    SplitFabric(std::unique_ptr<Fabric> exchange, std::unique_ptr<Fabric> kv)
        : exchange_(std::move(exchange)), kv_(std::move(kv)) {
        CHECK(exchange_->node() == kv_->node() && exchange_->epoch() == kv_->epoch(),
              "node-{} epoch {} with node-{} epoch {}", exchange_->node(), exchange_->epoch(),
              kv_->node(), kv_->epoch());
        exchange_->on_peer_change([this](int node, uint32_t epoch) { changed(0, node, epoch); });
        kv_->on_peer_change([this](int node, uint32_t epoch) { changed(1, node, epoch); });
    }

    int node() const override { return exchange_->node(); }
    uint32_t epoch() const override { return exchange_->epoch(); }
    // "<length of the first> <first><second>"
    std::string address() const override {
        const std::string first = exchange_->address();
        return fmt::format("{} {}{}", first.size(), first, kv_->address());
    }

    void open(int port, Receiver* receiver) override { of(port).open(port, receiver); }
    void close(int port) override { of(port).close(port); }

    Status send(Destination to, const Message& message) override {
        if (peer_epoch(to.node) == 0)
            return error("node-{} is not connected to node-{} (message for port {})", node(),
                         to.node, to.port);
        return of(to.port).send(to, message);
    }

    Status set_peer(int node, uint32_t epoch, const std::string& address) override {
        const size_t space = address.find(' ');
        size_t length = 0;
        if (space != std::string::npos)
            std::from_chars(address.data(), address.data() + space, length);
        if (length == 0 || length > address.size() || space + 1 + length >= address.size())
            return error("address '{}', expected those of two fabrics", address);
        RETURN_IF_ERROR(exchange_->set_peer(node, epoch, address.substr(space + 1, length)));
        return kv_->set_peer(node, epoch, address.substr(space + 1 + length));
    }
    void drop_peer(int node, uint32_t epoch) override {
        exchange_->drop_peer(node, epoch);
        kv_->drop_peer(node, epoch);
    }
    // Between the two halves' connecting and losing it is not connected.
    uint32_t peer_epoch(int node) const override {
        const uint32_t epoch = exchange_->peer_epoch(node);
        return epoch == kv_->peer_epoch(node) ? epoch : 0;
    }

    void on_peer_change(std::function<void(int, uint32_t)> listener) override {
        std::lock_guard lock(mutex_);
        for (int node = 0; node < kMaxNodes; ++node)
            if (peers_[node].told != 0) listener(node, peers_[node].told);
        listeners_.push_back(std::move(listener));
    }

    Result<OwnRegion> register_memory(std::byte* base, size_t bytes) override {
        return kv_->register_memory(base, bytes);
    }
    Result<OwnRegion> allocate_memory(size_t bytes) override { return kv_->allocate_memory(bytes); }
    void revoke(uint32_t region_id) override { kv_->revoke(region_id); }
    Result<RemoteRegion> attach(const std::string& key) override { return kv_->attach(key); }
    Status transfer(Access access, const RemoteRegion& region, std::span<const Piece> pieces,
                    TransferDone done) override {
        return kv_->transfer(access, region, pieces, std::move(done));
    }

  private:
    struct Peer {
        std::array<uint32_t, 2> epochs{};  // of each half
        uint32_t told = 0;
    };

    Fabric& of(int port) const { return is_kv_port(port) ? *kv_ : *exchange_; }

    void changed(int half, int node, uint32_t epoch) {
        std::lock_guard lock(mutex_);  // also keeps the listeners' calls in order
        Peer& peer = peers_[node];
        peer.epochs[half] = epoch;
        const uint32_t both = peer.epochs[0] == peer.epochs[1] ? epoch : 0;
        if (both == peer.told) return;
        if (both != 0 && peer.told != 0) tell(node, 0);
        peer.told = both;
        tell(node, both);
    }
    void tell(int node, uint32_t epoch) {
        for (const auto& listener : listeners_) listener(node, epoch);
    }

    std::mutex mutex_;
    std::array<Peer, kMaxNodes> peers_;
    std::vector<std::function<void(int, uint32_t)>> listeners_;
    // Last, so that their threads, which call changed(), have ended before the rest goes.
    const std::unique_ptr<Fabric> exchange_, kv_;
};

}  // namespace

std::unique_ptr<Fabric> make_split_fabric(std::unique_ptr<Fabric> exchange,
                                          std::unique_ptr<Fabric> kv) {
    return std::make_unique<SplitFabric>(std::move(exchange), std::move(kv));
}

}  // namespace aerie::comm
