#include "comm/network/handshake.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

namespace aerie::comm {
namespace {

constexpr uint32_t kMagic = 0x61657269;  // "aeri"; in another byte order it is another number
constexpr uint16_t kVersion = 3;
constexpr uint32_t kMaxPairAddressBytes = 64 << 10;

struct Frame {
    uint32_t magic;
    uint16_t version;
    uint16_t answer;
    uint32_t machine;  // this_machine() of the sender
    int32_t from_node;
    uint32_t from_epoch;
    int32_t to_node;
    uint32_t to_epoch;
    int32_t process;         // of the sender, and the space of process numbers that it is of
    uint64_t process_space;
    uint32_t address_bytes;  // follow
};

// A number of this start of the machine's kernel; 0: it has none.
uint32_t this_machine() {
    static const uint32_t number = [] {
        std::ifstream file("/proc/sys/kernel/random/boot_id");
        uint32_t hash = 0;
        for (char c; file.get(c);) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193;  // FNV
        return hash;
    }();
    return number;
}

// Of this process's namespace of process numbers.
uint64_t this_process_space() {
    struct stat space{};
    return stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
}

struct AddressList {
    explicit AddressList(addrinfo* first) : first(first) {}
    ~AddressList() { freeaddrinfo(first); }
    addrinfo* first;
};

Result<std::unique_ptr<AddressList>> resolve(const std::string& host, const std::string& port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* first = nullptr;
    const int status = getaddrinfo(host.c_str(), port.c_str(), &hints, &first);
    if (status != 0) return error("address '{}:{}': {}", host, port, gai_strerror(status));
    return std::make_unique<AddressList>(first);
}

// Nothing is sent over the socket, so a peer whose machine has gone shows by probes only: three,
// a second apart.
void set_options(int fd) {
    const int on = 1, idle_s = 2, interval_s = 1, count = 3;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

bool same_host(const sockaddr* a, const sockaddr* b) {
    if (a == nullptr || a->sa_family != b->sa_family) return false;
    if (a->sa_family == AF_INET)
        return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
               reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
    if (a->sa_family == AF_INET6)
        return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                           &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, 16) == 0;
    return false;
}

std::string interface_of(const sockaddr* address) {
    std::string name;
    ifaddrs* first = nullptr;
    if (getifaddrs(&first) != 0) return name;
    for (const ifaddrs* i = first; i != nullptr && name.empty(); i = i->ifa_next)
        if (same_host(i->ifa_addr, address)) name = i->ifa_name;
    freeifaddrs(first);
    return name;
}

// A free port of the range, or any for port 0.
bool bind_to(int fd, sockaddr* address, socklen_t length, int first_port, int last_port) {
    auto& port = address->sa_family == AF_INET6
                     ? reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                     : reinterpret_cast<sockaddr_in*>(address)->sin_port;
    for (int number = first_port; number <= last_port; ++number) {
        port = htons(static_cast<uint16_t>(number));
        if (bind(fd, address, length) == 0) return listen(fd, 64) == 0;
        if (errno != EADDRINUSE) return false;
    }
    return false;
}

}  // namespace

Connection::Connection(int fd) : fd_(fd) { set_options(fd); }
Connection::Connection(Connection&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), process_fd_(std::exchange(other.process_fd_, -1)),
      same_machine_(other.same_machine_), farewell_(other.farewell_),
      out_(std::move(other.out_)), in_(std::move(other.in_)) {}
Connection& Connection::operator=(Connection&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(process_fd_, other.process_fd_);
    std::swap(same_machine_, other.same_machine_);
    std::swap(farewell_, other.farewell_);
    std::swap(out_, other.out_);
    std::swap(in_, other.in_);
    return *this;
}
Connection::~Connection() {
    if (fd_ >= 0) ::close(fd_);
    if (process_fd_ >= 0) ::close(process_fd_);
}

Result<Connection> Connection::connect_to(const std::string& address) {
    const size_t colon = address.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == address.size())
        return error("address '{}', expected HOST:PORT", address);
    auto found = resolve(address.substr(0, colon), address.substr(colon + 1));
    if (!found) return found.error();
    const addrinfo& to = *(*found)->first;
    Connection connection(socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!connection ||
        (::connect(connection.fd_, to.ai_addr, to.ai_addrlen) != 0 && errno != EINPROGRESS))
        return error("nobody answers at {}: {}", address, strerror(errno));
    return connection;
}

void Connection::say(const Greeting& greeting) {
    const Frame frame{kMagic,
                      kVersion,
                      static_cast<uint16_t>(greeting.answer),
                      this_machine(),
                      greeting.from_node,
                      greeting.from_epoch,
                      greeting.to_node,
                      greeting.to_epoch,
                      getpid(),
                      this_process_space(),
                      static_cast<uint32_t>(greeting.pair_address.size())};
    out_.append(reinterpret_cast<const char*>(&frame), sizeof(frame));
    out_.append(greeting.pair_address);
}

Result<bool> Connection::flush() {
    while (!out_.empty()) {
        const ssize_t count = send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL);
        if (count >= 0)
            out_.erase(0, count);
        else if (errno == EAGAIN || errno == ENOTCONN)  // still connecting
            return false;
        else if (errno != EINTR)
            return error("{}", strerror(errno));
    }
    return true;
}

Result<std::optional<Greeting>> Connection::hear() {
    char buffer[4096];
    bool over = false;
    for (;;) {
        const ssize_t count = recv(fd_, buffer, sizeof(buffer), 0);
        if (count > 0) {
            in_.append(buffer, count);
            if (in_.size() > sizeof(Frame) + kMaxPairAddressBytes)
                return error("the other side is no aerie host: it sends too much");
        } else if (count == 0) {
            over = true;  // perhaps after its answer
            break;
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            return error("{}", strerror(errno));
        }
    }
    const Error closed{"the other side has closed the connection"};
    const std::optional<Greeting> not_yet;
    Frame frame;
    if (in_.size() < sizeof(frame)) {
        if (over) return closed;
        return not_yet;
    }
    std::memcpy(&frame, in_.data(), sizeof(frame));
    if (frame.magic != kMagic || frame.version != kVersion ||
        frame.answer > static_cast<uint16_t>(Answer::kNoPair) ||
        frame.address_bytes > kMaxPairAddressBytes)
        return error("the other side is no aerie host of version {}", kVersion);
    if (in_.size() < sizeof(frame) + frame.address_bytes) {
        if (over) return closed;
        return not_yet;
    }
    same_machine_ = frame.machine == this_machine();
    if (same_machine_ && frame.process_space == this_process_space() && process_fd_ < 0)
        process_fd_ = static_cast<int>(syscall(SYS_pidfd_open, frame.process, 0));
    return std::optional<Greeting>({static_cast<Answer>(frame.answer), frame.from_node,
                                    frame.from_epoch, frame.to_node, frame.to_epoch,
                                    in_.substr(sizeof(frame), frame.address_bytes)});
}

bool Connection::process_ended(int limit_ms) const {
    if (process_fd_ < 0) return false;
    pollfd event{.fd = process_fd_, .events = POLLIN, .revents = 0};
    return poll(&event, 1, limit_ms) == 1;
}

bool Connection::ended() {
    char byte;
    ssize_t count = recv(fd_, &byte, 1, 0);
    if (count == 1) {
        farewell_ = true;
        count = recv(fd_, &byte, 1, 0);
    }
    return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

void Connection::end_own_side() {
    const char farewell = 1;
    (void)send(fd_, &farewell, 1, MSG_NOSIGNAL);
    shutdown(fd_, SHUT_WR);
}

bool Connection::wait_for_end(int limit_ms) {
    if (ended()) return true;
    pollfd event{.fd = fd_, .events = POLLIN | POLLRDHUP, .revents = 0};
    poll(&event, 1, limit_ms);
    return ended();
}

Listener::~Listener() {
    if (fd_ >= 0) ::close(fd_);
}

Status Listener::open(const std::string& host, int first_port, int last_port) {
    auto found = resolve(host, "0");
    if (!found) return found.error();
    const addrinfo& at = *(*found)->first;
    interface_ = interface_of(at.ai_addr);
    fd_ = socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0 || !bind_to(fd_, at.ai_addr, at.ai_addrlen, first_port, last_port))
        return error("cannot listen at {}, port {} to {}: {}", host, first_port, last_port,
                     strerror(errno));
    sockaddr_storage bound{};
    socklen_t length = sizeof(bound);
    char host_number[NI_MAXHOST], port_number[NI_MAXSERV];
    if (getsockname(fd_, reinterpret_cast<sockaddr*>(&bound), &length) != 0 ||
        getnameinfo(reinterpret_cast<sockaddr*>(&bound), length, host_number, sizeof(host_number),
                    port_number, sizeof(port_number), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return error("cannot name the address of {}: {}", host, strerror(errno));
    address_ = fmt::format("{}:{}", host_number, port_number);
    return {};
}

std::optional<Connection> Listener::accept() {
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return std::nullopt;
    return Connection(fd);
}

}  // namespace aerie::comm
