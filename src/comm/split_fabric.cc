// Exchange and KV over fabrics of their own, so that neither waits behind the other.
//
// A loss of one half is a loss of the pair. It is told once the other half has ended too: until then
// what the peer has begun may still land. Ending it may wait, which a listener must not: a thread of
// the split fabric's own does it.
#include <array>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/thread.h"
#include "comm/fabric.h"
#include "comm/port_numbers.h"

namespace aerie::comm {
namespace {

// How long set_peer() waits for what is left of a connection before.
constexpr double kHalfLimitS = 5;

class SplitFabric final : public Fabric {
  public:
    SplitFabric(std::unique_ptr<Fabric> exchange, std::unique_ptr<Fabric> kv)
        : exchange_(std::move(exchange)), kv_(std::move(kv)) {
        CHECK(exchange_->node() == kv_->node() && exchange_->epoch() == kv_->epoch(),
              "node-{} epoch {} with node-{} epoch {}", exchange_->node(), exchange_->epoch(),
              kv_->node(), kv_->epoch());
        exchange_->on_peer_change([this](int node, uint32_t epoch) { changed(0, node, epoch); });
        kv_->on_peer_change([this](int node, uint32_t epoch) { changed(1, node, epoch); });
        thread_ = std::thread([this] { run(); });
    }
    ~SplitFabric() override {
        {
            std::lock_guard lock(mutex_);
            stop_ = true;
        }
        news_.notify_all();
        thread_.join();
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
        if (!is_node(node)) return error("peer node {}, expected 0 to {}", node, kMaxNodes - 1);
        RETURN_IF_ERROR(wait_until_whole(node));
        RETURN_IF_ERROR(exchange_->set_peer(node, epoch, address.substr(space + 1, length)));
        RETURN_IF_ERROR(kv_->set_peer(node, epoch, address.substr(space + 1 + length)));
        if (peer_epoch(node) == epoch) return {};
        return error("node-{} with epoch {} was lost while it was being connected", node, epoch);
    }
    void drop_peer(int node, uint32_t epoch) override {
        exchange_->drop_peer(node, epoch);
        kv_->drop_peer(node, epoch);
    }
    void disconnect(int node, uint64_t connection) override { kv_->disconnect(node, connection); }
    uint32_t peer_epoch(int node) const override {
        if (node == this->node()) return epoch();
        return is_node(node) ? peers_[node].connected.load() : 0;
    }
    // The halves are lost together, so one number tells.
    uint64_t peer_connection(int node) const override {
        return peer_epoch(node) == 0 ? 0 : kv_->peer_connection(node);
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
    Result<OwnRegion> allocate_memory(size_t bytes, Device device) override {
        return kv_->allocate_memory(bytes, device);
    }
    void revoke(uint32_t region_id) override { kv_->revoke(region_id); }
    Result<RemoteRegion> attach(const std::string& key) override { return kv_->attach(key); }
    Status transfer(Access access, const RemoteRegion& region, std::span<const Piece> pieces,
                    TransferDone done) override {
        return kv_->transfer(access, region, pieces, std::move(done));
    }

  private:
    struct Peer {
        std::array<uint32_t, 2> epochs{};      // of each half
        std::array<bool, 2> lost{};            // halves that have ended since both were told
        uint32_t told = 0;                     // what listeners know
        std::atomic<uint32_t> connected{0};    // 0 from the first half's loss on
        bool half() const { return lost[0] != lost[1]; }
    };
    struct Half {
        Fabric* fabric;
        int node;
        uint64_t connection;
    };

    static bool is_node(int node) { return node >= 0 && node < kMaxNodes; }

    Fabric& of(int port) const { return is_kv_port(port) ? *kv_ : *exchange_; }

    void changed(int half, int node, uint32_t epoch) {
        std::lock_guard lock(mutex_);  // also keeps the listeners' calls in order
        Peer& peer = peers_[node];
        peer.epochs[half] = epoch;
        if (peer.told != 0 && epoch != peer.told) lose_half(half, node);
        if (peer.told == 0 && epoch != 0 && peer.epochs[0] == peer.epochs[1]) {
            peer.connected = epoch;
            tell(node, epoch);
        }
    }
    void lose_half(int half, int node) {
        Peer& peer = peers_[node];
        peer.connected = 0;
        peer.lost[half] = true;
        if (peer.half()) {
            if (stop_) return;  // the other half may be gone
            // As it is now: a later connection of that half is not meant.
            Fabric* other = half == 0 ? kv_.get() : exchange_.get();
            to_end_.push_back({other, node, other->peer_connection(node)});
        } else {
            peer.lost = {};
            tell(node, 0);
        }
        news_.notify_all();
    }
    void tell(int node, uint32_t epoch) {
        peers_[node].told = epoch;
        for (const auto& listener : listeners_) listener(node, epoch);
    }

    Status wait_until_whole(int node) {
        std::unique_lock lock(mutex_);
        if (news_.wait_for(lock, std::chrono::duration<double>(kHalfLimitS),
                           [&] { return !peers_[node].half(); }))
            return {};
        return error("what is left of the last connection to node-{} has not ended for {} s", node,
                     kHalfLimitS);
    }

    void run() {
        set_thread_name("split-fabric");
        std::unique_lock lock(mutex_);
        while (!stop_) {
            news_.wait(lock, [this] { return stop_ || !to_end_.empty(); });
            for (const Half& half : std::exchange(to_end_, {})) {
                lock.unlock();
                half.fabric->disconnect(half.node, half.connection);
                lock.lock();
            }
        }
    }

    std::mutex mutex_;
    std::condition_variable news_;
    bool stop_ = false;
    std::array<Peer, kMaxNodes> peers_;
    std::vector<Half> to_end_;
    std::vector<std::function<void(int, uint32_t)>> listeners_;
    // After the above, so that their threads, which call changed(), have ended before the rest goes.
    const std::unique_ptr<Fabric> exchange_, kv_;
    std::thread thread_;
};

}  // namespace

std::unique_ptr<Fabric> make_split_fabric(std::unique_ptr<Fabric> exchange,
                                          std::unique_ptr<Fabric> kv) {
    return std::make_unique<SplitFabric>(std::move(exchange), std::move(kv));
}

}  // namespace aerie::comm
