#include "comm/ucx/ucx_fabric.h"

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
constexpr double kCloseLimitS = 2;
constexpr double kReceiverLimitS = 60;

}  // namespace

Status UcxFabric::make_context() {
    auto loaded = load_ucx();
    if (!loaded) return loaded.error();
    ucx_ = *loaded;
    ucp_config_t* config = nullptr;
    RETURN_IF_UCX_ERROR(*ucx_, ucx_->ucp_config_read(nullptr, nullptr, &config), "UCX settings");
    const std::string transports =
        options_.transports.empty() ? "sysv,cma,tcp" : options_.transports;
    const std::string devices = options_.devices.empty() ? listener_.interface() : options_.devices;
    std::vector<std::pair<const char*, std::string>> settings{{"TLS", transports}};
    // One segment takes a whole eager message.
    const std::string segment = std::to_string(Pair::kSegmentBytes);
    for (const char* name : {"SYSV_SEG_SIZE", "POSIX_SEG_SIZE", "TCP_TX_SEG_SIZE"})
        settings.emplace_back(name, segment);
    for (const char* name : {"SYSV_RX_BUFS_GROW", "POSIX_RX_BUFS_GROW"})
        settings.emplace_back(name, "64");  // as many as the queue is long; 512 would be 17 MB
    if (!devices.empty()) settings.emplace_back("NET_DEVICES", devices);
    if (options_.first_port > 0)
        settings.emplace_back("TCP_PORT_RANGE",
                              fmt::format("{}-{}", options_.first_port, options_.last_port));
    ucs_status_t status = UCS_OK;
    for (const auto& [name, value] : settings)
        if (status == UCS_OK) status = ucx_->ucp_config_modify(config, name, value.c_str());

    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    params.mt_workers_shared = 1;
    if (status == UCS_OK)
        status = ucx_->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
    ucx_->ucp_config_release(config);
    RETURN_IF_UCX_ERROR(*ucx_, status, "UCX with transports {} on {}", transports,
                        devices.empty() ? "all devices" : devices);
    log_info("messages between hosts: UCX over {} on {}, node-{} with epoch {} at {}", transports,
             devices.empty() ? "all devices" : devices, node(), epoch(), listener_.address());
    return {};
}
Status UcxFabric::start() {
    if (!is_node(node()) || epoch() == 0)
        return error("node {} with epoch {}, expected 0 to {} and 1 or more", node(), epoch(),
                     kMaxNodes - 1);
    RETURN_IF_ERROR(listener_.open(options_.host, options_.first_port, options_.last_port));
    RETURN_IF_ERROR(make_context());
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (epoll_ < 0 || wake_fd_ < 0) return error("epoll: {}", strerror(errno));
    watch(wake_fd_, tag(Source::kWake, 0), EPOLLIN);
    watch(listener_.fd(), tag(Source::kListener, 0), EPOLLIN);
    thread_ = std::thread([this] { run(); });
    return {};
}

UcxFabric::~UcxFabric() {
    if (thread_.joinable()) {
        stop_ = true;
        wake();
        thread_.join();
    }
    for (Slot& slot : slots_) {
        slot.attempt.reset();
        slot.pair.reset();
    }
    if (context_ != nullptr) ucx_->ucp_cleanup(context_);
    if (epoll_ >= 0) ::close(epoll_);
    if (wake_fd_ >= 0) ::close(wake_fd_);
}
void UcxFabric::wake() {
    if (awake_.exchange(true)) return;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}
void UcxFabric::watch(int fd, uint64_t about, uint32_t events) {
    epoll_event event{.events = events, .data = {.u64 = about}};
    const int status = epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    CHECK(status == 0, "epoll of descriptor {}: {}", fd, strerror(errno));
}
void UcxFabric::unwatch(int fd) { epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr); }

Status UcxFabric::send(Destination to, const Message& message) {
    CHECK(message.header_bytes <= kMaxHeaderBytes, "header of {} bytes", message.header_bytes);
    if (to.node == node()) {
        const Incoming incoming{node(), epoch(), static_cast<const std::byte*>(message.header),
                                message.header_bytes, message.payload_bytes};
        deliver_in_process(ports_, to.port, incoming, message.payload, message.kind);
        return {};
    }
    if (is_node(to.node)) {
        Slot& slot = slots_[to.node];
        std::lock_guard lock(slot.mutex);
        if (slot.pair != nullptr) {
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
void UcxFabric::close(int port) {
    ports_.shut(port);
    if (ports_.drained(port, kCloseLimitS)) return;
    (void)command({.kind = Command::Kind::kRelease, .node = port});
    const bool idle = ports_.drained(port, kReceiverLimitS);
    CHECK(idle, "the receiver of port {} has not returned for {} s", port, kReceiverLimitS);
}
Status UcxFabric::set_peer(int node, uint32_t epoch, const std::string& address) {
    if (!is_node(node)) return error("peer node {}, expected 0 to {}", node, kMaxNodes - 1);
    if (node == this->node()) return {};
    return command(
        {.kind = Command::Kind::kConnect, .node = node, .epoch = epoch, .address = address});
}
void UcxFabric::drop_peer(int node, uint32_t epoch) {
    if (!is_node(node) || node == this->node()) return;
    (void)command({.kind = Command::Kind::kDrop, .node = node, .epoch = epoch});
}

uint32_t UcxFabric::peer_epoch(int node) const {
    if (node == this->node()) return epoch();
    return is_node(node) ? slots_[node].epoch.load() : 0;
}
void UcxFabric::on_peer_change(std::function<void(int, uint32_t)> listener) {
    std::lock_guard lock(listeners_mutex_);
    for (int node = 0; node < kMaxNodes; ++node)
        if (told_[node] != 0) listener(node, told_[node]);
    listeners_.push_back(std::move(listener));
}
void UcxFabric::tell(int node, uint32_t epoch) {
    std::lock_guard lock(listeners_mutex_);
    told_[node] = epoch;
    for (const auto& listener : listeners_) listener(node, epoch);
}
Status UcxFabric::command(Command command) {
    CHECK(std::this_thread::get_id() != thread_.get_id(),
          "set_peer, drop_peer or close called from a receiver or a listener");
    std::unique_lock lock(commands_mutex_);
    commands_.push_back(&command);
    wake();
    command_done_.wait(lock, [&] { return command.result.has_value(); });
    return std::move(*command.result);
}
void UcxFabric::finish(Command* command, Status result) {
    std::lock_guard lock(commands_mutex_);
    command->result = std::move(result);
    command_done_.notify_all();
}
void UcxFabric::run() {
    set_thread_name("ucx");
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
int UcxFabric::timeout_ms() const {
    if (!ready_.empty()) return 0;
    if (!stalled_.empty()) return 1;
    const bool waits = !visitors_.empty() || std::any_of(slots_.begin(), slots_.end(), [](auto& s) {
        return s.attempt != nullptr;
    });
    return waits ? 100 : -1;
}
void UcxFabric::handle(uint64_t about) {
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
void UcxFabric::obey() {
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
            case Command::Kind::kRelease:
                release(command->node);
                finish(command, {});
                break;
        }
    }
}
void UcxFabric::service(int node) {
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

Result<std::unique_ptr<Fabric>> make_ucx_fabric(const UcxOptions& options) {
    auto fabric = std::make_unique<UcxFabric>(options);
    RETURN_IF_ERROR(fabric->start());
    return std::unique_ptr<Fabric>(std::move(fabric));
}

}  // namespace aerie::comm
