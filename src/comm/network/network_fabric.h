// The fabric of a host process: a pair for each peer, and one thread that progresses all of them,
// greets who connects, and sleeps in epoll when nothing happens.
//
// Threads. Each peer's slot has a lock, held around every use of its pair: by senders, on their own
// thread, and by the fabric's thread while it progresses. All changes of who is connected are made
// by the fabric's thread alone, so they and the listeners' calls have one order; set_peer() and the
// like are commands to it that the caller waits for. Private to comm/.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "comm/fabric.h"
#include "comm/network/handshake.h"
#include "comm/network/pair.h"
#include "comm/ports.h"
#include "comm/regions.h"
#include "comm/remote_access.h"

namespace aerie::comm {

constexpr double kHandshakeLimitS = 5;

// What an epoll event is about: the kind above, a node or a visitor's number below.
enum class Source : uint64_t { kWake, kListener, kVisitor, kAttempt, kPeer, kWorker };
inline uint64_t tag(Source source, uint32_t id) { return static_cast<uint64_t>(source) << 32 | id; }

struct Command {
    enum class Kind { kConnect, kDrop, kDisconnect, kRelease } kind;
    int node = 0;  // kRelease: the port
    uint32_t epoch = 0;
    uint64_t connection = 0;
    std::string address = {};
    std::optional<Status> result = {};  // guarded by commands_mutex_
};

// set_peer() that goes on.
struct Attempt {
    uint32_t epoch;
    std::string address;
    TimePoint deadline;
    std::unique_ptr<Pair> pair;  // nullptr: given way to the peer's attempt, which is awaited
    Connection connection;
    std::vector<Command*> waiting;
};

struct Slot {
    std::mutex mutex;
    std::unique_ptr<Pair> pair;             // guarded by mutex
    std::atomic<uint32_t> epoch{0};         // of the pair; 0: not connected
    std::atomic<uint64_t> number{0};        // of the connection; 0: not connected
    std::atomic<bool> look{false};          // the fabric's thread shall progress it
    bool watched = false;  // guarded by mutex: the peer's process can be seen to end
    // By region, what Pair::map() gave, or a card's memory; guarded by mutex.
    struct Mapped {
        std::byte* base = nullptr;
        card::Imported card;
    };
    std::map<uint32_t, Mapped> mapped;

    // The fabric's thread only.
    uint32_t fenced = 0;  // lives up to this one never come back
    Connection connection;
    std::unique_ptr<Attempt> attempt;
    int fruitless = 0;  // rounds without progress in which the worker would not be armed
};

struct Visitor {
    Connection connection;
    TimePoint deadline;
};

class NetworkFabric final : public PairedFabric {
  public:
    explicit NetworkFabric(const NetworkOptions& options) : options_(options) {}
    ~NetworkFabric() override;
    // Listens, so that listener() has the address and the interface; then start().
    Status listen();
    const Listener& listener() const { return listener_; }
    Status start(std::unique_ptr<Network> network);

    int node() const override { return options_.node; }
    uint32_t epoch() const override { return options_.epoch; }
    std::string address() const override { return listener_.address(); }
    void open(int port, Receiver* receiver) override { ports_.open(port, receiver); }
    void close(int port) override;
    Status send(Destination to, const Message& message) override;
    Status send_over(uint64_t connection, Destination to, const Message& message) override;
    Status set_peer(int node, uint32_t epoch, const std::string& address) override;
    void drop_peer(int node, uint32_t epoch) override;
    void disconnect(int node, uint64_t connection) override;
    uint32_t peer_epoch(int node) const override;
    uint64_t peer_connection(int node) const override;
    void on_peer_change(std::function<void(int, uint32_t)> listener) override;
    Result<OwnRegion> register_memory(std::byte* base, size_t bytes) override;
    Result<OwnRegion> allocate_memory(size_t bytes, Device device) override;
    void revoke(uint32_t region_id) override;
    Result<RemoteRegion> attach(const std::string& key) override;
    Status transfer(Access access, const RemoteRegion& region, std::span<const Piece> pieces,
                    TransferDone done) override;

  private:
    static bool is_node(int node) { return node >= 0 && node < kMaxNodes; }

    Result<OwnRegion> allocate_on_card(size_t bytes);
    Status map_region(Slot& slot, const KeyContent& content, RemoteRegion& region);
    // number: of the connection that it shall go over; 0: any.
    Status send_to_peer(uint64_t number, Destination to, const Message& message);
    Status command(Command command);
    void wake();
    void watch(int fd, uint64_t about, uint32_t events);
    void unwatch(int fd);

    // The fabric's thread.
    void run();
    int timeout_ms() const;
    void handle(uint64_t about);
    void obey();
    void begin_connect(Command* command);
    void finish(Command* command, Status result);
    void greet(uint32_t visitor);
    Answer judge(const Greeting& hello);
    bool welcome(Connection& connection, const Greeting& hello);
    void go_on(int node);
    void answered(int node, const Greeting& greeting);
    void give_up(int node, Status why);
    void expire();
    void establish(int node, std::unique_ptr<Pair> pair, Connection connection);
    bool leave(int node);
    void lose(int node);
    void let_go_of_cards();
    void await_exits(std::span<const int> nodes, TimePoint deadline);
    static void end_pair(std::unique_ptr<Pair> pair);
    void release(int port);
    void service(int node);
    void tell(int node, uint32_t epoch);

    const NetworkOptions options_;
    std::unique_ptr<Network> network_;
    Ports ports_;
    Regions regions_;
    RemoteAccess remote_{*this, regions_};
    Listener listener_;
    std::array<Slot, kMaxNodes> slots_;
    int epoll_ = -1;
    int wake_fd_ = -1;
    std::atomic<bool> awake_{false};  // wake_fd_ has been written to
    std::atomic<bool> stop_{false};
    std::thread thread_;

    std::mutex commands_mutex_;
    std::condition_variable command_done_;
    std::deque<Command*> commands_;

    std::mutex listeners_mutex_;
    std::vector<std::function<void(int, uint32_t)>> listeners_;
    std::array<uint32_t, kMaxNodes> told_{};  // what listeners know

    std::mutex memory_mutex_;
    struct Mappable {
        std::byte* base;
        size_t bytes;
    };
    std::map<uint32_t, Mappable> mappable_;  // by region: memory of the network's
    // Of the card: kept to the end, since peers that have it open may leave late.
    std::vector<Buffer> on_card_;
    std::atomic<bool> ever_mappable_{false};
    std::atomic<bool> ever_on_card_{false};  // memory of a card was allocated
    card::CopyQueue queue_;

    // The fabric's thread only.
    std::map<uint32_t, Visitor> visitors_;
    uint32_t next_visitor_ = 0;
    uint64_t next_number_ = 2;  // of a connection; 1 is the own node's
    std::vector<int> connected_;
    std::vector<int> ready_, stalled_;  // to be progressed: now, in a millisecond
};

}  // namespace aerie::comm
