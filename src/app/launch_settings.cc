#include "app/launch_settings.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

namespace aerie {
namespace {

// The address that this machine's packets to `target` ("host:port") come from. A connected datagram
// socket knows it; nothing is sent.
Result<std::string> address_towards(const std::string& target) {
    const size_t colon = target.rfind(':');
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_DGRAM;
    if (getaddrinfo(target.substr(0, colon).c_str(), target.substr(colon + 1).c_str(), &hints,
                    &found) != 0) {
        return error("the rendezvous {} is not known to this machine, expected HOST:PORT", target);
    }
    const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    char text[NI_MAXHOST] = "";
    const bool ok = connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                    getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
                    getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof text, nullptr,
                                0, NI_NUMERICHOST) == 0;
    close(fd);
    freeaddrinfo(found);
    if (!ok) return error("this machine has no way to the rendezvous {}", target);
    return std::string(text);
}

}  // namespace

bool all_nodes_here(const Config& config) {
    return static_cast<int>(nodes_here(config).size()) == config.cluster.nodes;
}

std::string control_address(const Config& config) {
    const auto range = parse_port_range(config.cluster.port_range);
    if (all_nodes_here(config)) return fmt::format("127.0.0.1:{}", range ? range->first : 0);
    if (!config.rendezvous.empty()) return config.rendezvous;
    return fmt::format("{}:{}", config.cluster.hosts.front().second,
                       range ? range->first : config.server.port + 1);
}

Result<std::string> fabric_host(const Config& config, int node, const std::string& control) {
    if (all_nodes_here(config)) return std::string("127.0.0.1");
    for (const auto& [name, address] : config.cluster.hosts) {
        if (name == config.node_name(node)) return address;
    }
    return address_towards(control);
}

std::vector<std::string> node_addresses(const Config& config) {
    std::vector<std::string> addresses(config.cluster.nodes, "the machine of its --node-rank");
    for (const int node : nodes_here(config)) addresses[node] = "this machine";
    for (int node = 0; node < static_cast<int>(config.cluster.hosts.size()); ++node) {
        addresses[node] = config.cluster.hosts[node].second;
    }
    return addresses;
}

}  // namespace aerie
