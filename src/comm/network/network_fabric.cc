#include "comm/network/network_fabric.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"

namespace aerie::comm {
namespace {

constexpr size_t kMaxVisitors = 64;
constexpr double kCardLimitS = 1;
constexpr double kCloseLimitS = 2;
constexpr double kReceiverLimitS = 60;

}  // namespace

Status NetworkFabric::listen() {
    if (!is_node(node()) || epoch() == 0)
        return error("node {} with epoch {}, expected 0 to {} and 1 or more", node(), epoch(),
                     kMaxNodes - 1);
    return listener_.open(options_.host, options_.first_port, options_.last_port);
}
Status NetworkFabric::start(std::unique_ptr<Network> network) {
    network_ = std::move(network);
    ports_.open(kAccessPort, &remote_);
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (epoll_ < 0 || wake_fd_ < 0) return error("epoll: {}", strerror(errno));
    watch(wake_fd_, tag(Source::kWake, 0), EPOLLIN);
    watch(listener_.fd(), tag(Source::kListener, 0), EPOLLIN);
    thread_ = std::thread([this] { run(); });
    return {};
}

NetworkFabric::~NetworkFabric() {
    if (thread_.joinable()) {
        stop_ = true;
        wake();
        thread_.join();
    }
    for (Slot& slot : slots_) {
        slot.attempt.reset();
        std::unique_ptr<Pair> pair;
        {
            std::lock_guard lock(slot.mutex);
            pair = std::move(slot.pair);
            slot.epoch = 0;
            slot.number = 0;
        }
        if (pair == nullptr) continue;
        end_pair(std::move(pair));
        slot.mapped.clear();
        slot.connection.end_own_side();
    }
    let_go_of_cards();
    remote_.stop();
    for (const auto& [id, memory] : mappable_) network_->free(memory.base);
    network_.reset();
    if (epoll_ >= 0) ::close(epoll_);
    if (wake_fd_ >= 0) ::close(wake_fd_);
}
// Memory of a card is freed once the peers have let go of it, which the ends of their sides tell.
void NetworkFabric::let_go_of_cards() {
    if (on_card_.empty()) return;
    const TimePoint deadline = after(kCardLimitS);
    for (const int node : connected_) {
        Connection& connection = slots_[node].connection;
        if (!connection.same_machine()) continue;
        while (!connection.wait_for_end(5) && Clock::now() < deadline) {}
    }
    on_card_.clear();
}
void NetworkFabric::wake() {
    if (awake_.exchange(true)) return;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}
void NetworkFabric::watch(int fd, uint64_t about, uint32_t events) {
    epoll_event event{.events = events, .data = {.u64 = about}};
    const int status = epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    CHECK(status == 0, "epoll of descriptor {}: {}", fd, strerror(errno));
}
void NetworkFabric::unwatch(int fd) { epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr); }

Status NetworkFabric::send(Destination to, const Message& message) {
    CHECK(message.header_bytes <= kMaxHeaderBytes, "header of {} bytes", message.header_bytes);
    if (to.node == node()) {
        const Incoming incoming{node(), epoch(), static_cast<const std::byte*>(message.header),
                                message.header_bytes, message.payload_bytes};
        deliver_in_process(ports_, to.port, incoming, message.payload, message.kind);
        return {};
    }
    return send_to_peer(0, to, message);
}
Status NetworkFabric::send_over(uint64_t connection, Destination to, const Message& message) {
    CHECK(connection != 0 && to.node != node(), "connection {} to node-{}", connection, to.node);
    return send_to_peer(connection, to, message);
}
Status NetworkFabric::send_to_peer(uint64_t number, Destination to, const Message& message) {
    if (is_node(to.node)) {
        Slot& slot = slots_[to.node];
        std::lock_guard lock(slot.mutex);
        if (slot.pair != nullptr && (number == 0 || slot.number == number)) {
            auto done = slot.pair->send(to.port, message);
            // A message under way may wait for room in the peer's queue, which only progress sees.
            const bool look = !done || !*done;
            if (look && !slot.look.exchange(true)) wake();
            if (!done) return done.error();
            return {};
        }
    }
    return error("node-{} is not connected to node-{} (message for port {})", node(), to.node,
                 to.port);
}
void NetworkFabric::close(int port) {
    ports_.shut(port);
    if (ports_.drained(port, kCloseLimitS)) return;
    (void)command({.kind = Command::Kind::kRelease, .node = port});
    const bool idle = ports_.drained(port, kReceiverLimitS);
    CHECK(idle, "the receiver of port {} has not returned for {} s", port, kReceiverLimitS);
}
Status NetworkFabric::set_peer(int node, uint32_t epoch, const std::string& address) {
    if (!is_node(node)) return error("peer node {}, expected 0 to {}", node, kMaxNodes - 1);
    if (node == this->node()) return {};
    return command(
        {.kind = Command::Kind::kConnect, .node = node, .epoch = epoch, .address = address});
}
void NetworkFabric::drop_peer(int node, uint32_t epoch) {
    if (!is_node(node) || node == this->node()) return;
    (void)command({.kind = Command::Kind::kDrop, .node = node, .epoch = epoch});
}

void NetworkFabric::disconnect(int node, uint64_t connection) {
    if (!is_node(node) || node == this->node()) return;
    (void)command({.kind = Command::Kind::kDisconnect, .node = node, .connection = connection});
}

uint32_t NetworkFabric::peer_epoch(int node) const {
    if (node == this->node()) return epoch();
    return is_node(node) ? slots_[node].epoch.load() : 0;
}
uint64_t NetworkFabric::peer_connection(int node) const {
    if (node == this->node()) return 1;
    return is_node(node) ? slots_[node].number.load() : 0;
}
void NetworkFabric::on_peer_change(std::function<void(int, uint32_t)> listener) {
    std::lock_guard lock(listeners_mutex_);
    for (int node = 0; node < kMaxNodes; ++node)
        if (told_[node] != 0) listener(node, told_[node]);
    listeners_.push_back(std::move(listener));
}
void NetworkFabric::tell(int node, uint32_t epoch) {
    remote_.peer_changed(node, epoch);
    std::lock_guard lock(listeners_mutex_);
    told_[node] = epoch;
    for (const auto& listener : listeners_) listener(node, epoch);
}
Status NetworkFabric::command(Command command) {
    CHECK(std::this_thread::get_id() != thread_.get_id(),
          "set_peer, drop_peer, disconnect or close called from a receiver or a listener");
    std::unique_lock lock(commands_mutex_);
    commands_.push_back(&command);
    wake();
    command_done_.wait(lock, [&] { return command.result.has_value(); });
    return std::move(*command.result);
}
void NetworkFabric::finish(Command* command, Status result) {
    std::lock_guard lock(commands_mutex_);
    command->result = std::move(result);
    command_done_.notify_all();
}
void NetworkFabric::run() {
    set_thread_name(network_->name());
    std::array<epoll_event, 32> events;
    while (!stop_) {
        const int count = epoll_wait(epoll_, events.data(), events.size(), timeout_ms());
        ready_.insert(ready_.end(), stalled_.begin(), stalled_.end());
        stalled_.clear();
        for (int i = 0; i < count; ++i) handle(events[i].data.u64);
        expire();
        std::sort(ready_.begin(), ready_.end());
        ready_.erase(std::unique(ready_.begin(), ready_.end()), ready_.end());
        for (int node : std::exchange(ready_, {})) service(node);
    }
}
int NetworkFabric::timeout_ms() const {
    if (!ready_.empty()) return 0;
    if (!stalled_.empty()) return 1;
    const bool waits = !visitors_.empty() || std::any_of(slots_.begin(), slots_.end(), [](auto& s) {
        return s.attempt != nullptr;
    });
    return waits ? 100 : -1;
}
void NetworkFabric::handle(uint64_t about) {
    const auto id = static_cast<uint32_t>(about);
    switch (static_cast<Source>(about >> 32)) {
        case Source::kWake: {
            uint64_t value;
            [[maybe_unused]] const ssize_t bytes = read(wake_fd_, &value, sizeof(value));
            awake_ = false;
            for (int node : connected_)
                if (slots_[node].look.exchange(false)) ready_.push_back(node);
            return obey();
        }
        case Source::kListener:
            while (auto connection = listener_.accept()) {
                if (visitors_.size() >= kMaxVisitors) continue;
                watch(connection->fd(), tag(Source::kVisitor, next_visitor_), EPOLLIN);
                visitors_.emplace(next_visitor_++,
                                  Visitor{std::move(*connection), after(kHandshakeLimitS)});
            }
            return;
        case Source::kVisitor:
            return greet(id);
        case Source::kAttempt:
            return go_on(id);
        case Source::kPeer:
            if (slots_[id].connection && slots_[id].connection.ended()) lose(id);
            return;
        case Source::kWorker:
            ready_.push_back(id);
            return;
    }
}
void NetworkFabric::obey() {
    std::deque<Command*> commands;
    {
        std::lock_guard lock(commands_mutex_);
        commands.swap(commands_);
    }
    for (Command* command : commands) {
        Slot& slot = slots_[command->kind == Command::Kind::kRelease ? 0 : command->node];
        switch (command->kind) {
            case Command::Kind::kConnect:
                begin_connect(command);
                break;
            case Command::Kind::kDrop:
                slot.fenced = std::max(slot.fenced, command->epoch);
                if (slot.attempt && slot.attempt->epoch <= command->epoch)
                    give_up(command->node, error("node-{} was dropped", command->node));
                if (slot.epoch != 0 && slot.epoch <= command->epoch) lose(command->node);
                finish(command, {});
                break;
            case Command::Kind::kDisconnect:
                if (slot.number != 0 && slot.number == command->connection) lose(command->node);
                finish(command, {});
                break;
            case Command::Kind::kRelease:
                release(command->node);
                finish(command, {});
                break;
        }
    }
}
void NetworkFabric::service(int node) {
    constexpr int kRounds = 32;     // then the others, and senders, have their turn
    constexpr int kFruitless = 20;  // then in naps of a millisecond
    Slot& slot = slots_[node];
    bool moved = false, armed = false, broken = false;
    {
        std::lock_guard lock(slot.mutex);
        if (slot.pair == nullptr) return;
        int round = 0;
        while (round < kRounds && slot.pair->progress()) ++round;
        moved = round > 0;
        armed = round < kRounds && slot.pair->arm();
        broken = slot.pair->broken();
    }
    if (broken) return lose(node);
    slot.fruitless = armed || moved ? 0 : slot.fruitless + 1;
    if (armed) return;
    // Not armed: there is more to come, or the peer does not empty its queue.
    (slot.fruitless < kFruitless ? ready_ : stalled_).push_back(node);
}

}  // namespace aerie::comm
