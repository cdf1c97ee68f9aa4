#include "config/environment.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tensor/card.h"

namespace aerie {
namespace {

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

std::optional<int> number(const std::string& text) {
    int value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || status != std::errc() || end != text.data() + text.size() || value < 0) {
        return std::nullopt;
    }
    return value;
}

// The 7 of "aerie-7", as pods of a StatefulSet are called.
std::optional<int> ordinal(const std::string& host) {
    const size_t dash = host.rfind('-');
    return dash == std::string::npos ? std::nullopt : number(host.substr(dash + 1));
}

// A number of bytes in a file of the control group; 0 for "max" and for no such file.
int64_t bytes_in(const char* path) {
    std::ifstream file(path);
    int64_t bytes = 0;
    file >> bytes;
    return file ? bytes : 0;
}

int64_t memory_available() {
    std::ifstream file("/proc/meminfo");
    int64_t available = 0;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string name;
        int64_t kib = 0;
        words >> name >> kib;
        if (name == "MemAvailable:") available = kib * 1024;
    }
    const int64_t limit = bytes_in("/sys/fs/cgroup/memory.max");
    if (limit > 0) {
        const int64_t left = limit - bytes_in("/sys/fs/cgroup/memory.current");
        available = std::min(available, std::max<int64_t>(left, 0));
    }
    return available;
}

}  // namespace

NodeIdentity identity_from_environment() {
    NodeIdentity identity;
    if (const std::string address = variable("MASTER_ADDR"); !address.empty()) {
        const std::string port = variable("MASTER_PORT");
        identity.rendezvous = address + ":" + (port.empty() ? "29500" : port);
    }
    for (const char* name : {"NODE_RANK", "GROUP_RANK"}) {
        identity.node_rank = number(variable(name));
        if (identity.node_rank) return identity;
    }
    // A job of one machine says nothing: every node may still run here.
    if (number(variable("SLURM_JOB_NUM_NODES")).value_or(1) > 1 ||
        number(variable("SLURM_NNODES")).value_or(1) > 1) {
        identity.node_rank = number(variable("SLURM_NODEID"));
        const std::string address = variable("SLURM_LAUNCH_NODE_IPADDR");
        if (identity.rendezvous.empty() && !address.empty()) {
            identity.rendezvous = address + ":29500";
        }
        if (identity.node_rank) return identity;
    }
    if (const auto index = number(variable("JOB_COMPLETION_INDEX"))) {
        identity.node_rank = index;
    } else if (!identity.rendezvous.empty() && !variable("KUBERNETES_SERVICE_HOST").empty()) {
        // Many pods end in a number by chance, so the name counts only with an address to join.
        identity.node_rank = ordinal(variable("HOSTNAME"));
    }
    return identity;
}

std::string test_fault_from_environment() { return variable("AERIE_TEST_FAULT"); }

Machine probe_machine() {
    const int num_gpus = card::count();
    return {.num_gpus = num_gpus,
            .memory_free = memory_available(),
            .gpu_memory = num_gpus > 0 ? card::memory_total() : 0};
}

bool is_local_address(const std::string& address) {
    char own_name[256] = "";
    gethostname(own_name, sizeof own_name - 1);
    if (address == own_name || address == "localhost") return true;
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(address.c_str(), nullptr, &hints, &found) != 0) return false;
    ifaddrs* interfaces = nullptr;
    bool local = false;
    if (getifaddrs(&interfaces) == 0) {
        const auto text = [](const sockaddr* a) {
            char host[NI_MAXHOST] = "";
            const socklen_t size =
                a->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
            getnameinfo(a, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
            return std::string(host);
        };
        for (auto* candidate = found; candidate; candidate = candidate->ai_next) {
            const std::string wanted = text(candidate->ai_addr);
            for (auto* own = interfaces; own && !local; own = own->ifa_next) {
                if (!own->ifa_addr || own->ifa_addr->sa_family != candidate->ai_family) continue;
                local = wanted.starts_with("127.") || text(own->ifa_addr) == wanted;
            }
        }
        freeifaddrs(interfaces);
    }
    freeaddrinfo(found);
    return local;
}

std::vector<int> nodes_here(const Config& config) {
    if (config.node_rank) return {*config.node_rank};
    std::vector<int> nodes;
    for (int node = 0; node < config.cluster.nodes; ++node) {
        const auto& hosts = config.cluster.hosts;
        const auto host = std::find_if(hosts.begin(), hosts.end(), [&](const auto& entry) {
            return entry.first == config.node_name(node);
        });
        if (host == hosts.end() || is_local_address(host->second)) nodes.push_back(node);
    }
    return nodes;
}

}  // namespace aerie
