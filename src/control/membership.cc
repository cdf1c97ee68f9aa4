#include "control/membership.h"

#include <algorithm>
#include <array>

namespace aerie::control {
namespace {

constexpr std::array kRoles = {Role::kPrefill, Role::kDecode, Role::kUnified, Role::kExpert};

// Dispatches and combines go between attention and experts, KV between prefill and decode.
bool exchange_messages(const Placement& placement, int a, int b) {
    const auto is = [&](int node, Role role) { return placement.has_role(node, role); };
    const auto attention = [&](int node) { return !placement.nodes[node].attention_ranks.empty(); };
    const auto expert = [&](int node) { return !placement.nodes[node].expert_ranks.empty(); };
    return (attention(a) && expert(b)) || (expert(a) && attention(b)) ||
           (is(a, Role::kPrefill) && is(b, Role::kDecode)) ||
           (is(a, Role::kDecode) && is(b, Role::kPrefill));
}

}  // namespace

std::string host_label(const Placement& placement, int node) {
    std::string roles;
    for (const Role role : kRoles) {
        if (!placement.has_role(node, role)) continue;
        roles += (roles.empty() ? "" : ", ") + std::string(name_of(role));
    }
    return fmt::format("{} ({})", placement.nodes[node].name, roles);
}

Membership::Membership(const Placement& placement, BuildIdentity expected)
    : expected_(std::move(expected)), nodes_(placement.nodes.size()) {
    for (int n = 0; n < num_nodes(); ++n) {
        Node& node = nodes_[n];
        node.attention = !placement.nodes[n].attention_ranks.empty();
        node.expert = !placement.nodes[n].expert_ranks.empty();
        node.label = host_label(placement, n);
        for (int other = 0; other < num_nodes(); ++other) {
            if (other != n && exchange_messages(placement, n, other)) node.linked.push_back(other);
        }
    }
}

Status Membership::check(const HostIdentity& host) const {
    if (host.node < 0 || host.node >= num_nodes() || !has_host(host.node)) {
        return error("node-{} has no role in this cluster of {} nodes", host.node, num_nodes());
    }
    const std::string& who = label(host.node);
    if (host.version != expected_.version) {
        return error("{} runs aerie {}, node-0 runs {}: the same version is expected everywhere", who,
                     host.version, expected_.version);
    }
    if (host.config_fingerprint != expected_.config_fingerprint) {
        return error("{} has another configuration than node-0 (fingerprint {:016x}, expected "
                     "{:016x}): settings.json, config.toml and flags must be equal everywhere",
                     who, host.config_fingerprint, expected_.config_fingerprint);
    }
    if (host.model_fingerprint != expected_.model_fingerprint) {
        return error("{} has another model than node-0 (fingerprint {:016x}, expected {:016x}): the "
                     "model folders differ",
                     who, host.model_fingerprint, expected_.model_fingerprint);
    }
    if (host.epoch <= epoch(host.node)) {
        return error("{} joins with epoch {}, but epoch {} has been seen: an older process of this "
                     "node still runs, or two machines claim to be it",
                     who, host.epoch, epoch(host.node));
    }
    return {};
}

bool Membership::join(const HostIdentity& host, uint64_t session) {
    Node& node = nodes_[host.node];
    CHECK_EQ(node.session, 0u);
    const bool again = node.epoch != 0;
    node.session = session;
    node.epoch = host.epoch;
    node.fabric_address = host.fabric_address;
    return again;
}

void Membership::ready(int n, bool loaded, std::vector<ReachedPeer> reached) {
    nodes_[n].loaded = loaded;
    nodes_[n].reached = std::move(reached);
    find_live();
}

void Membership::lose(int n) {
    Node& node = nodes_[n];
    node.session = 0;
    node.loaded = node.live = false;
    node.reached.clear();
    find_live();
}

bool Membership::heard(int node, int from) const {
    const ReachedPeer life{from, nodes_[from].epoch};
    const auto& reached = nodes_[node].reached;
    return std::find(reached.begin(), reached.end(), life) != reached.end();
}

void Membership::find_live() {
    for (int n = 0; n < num_nodes(); ++n) {
        Node& node = nodes_[n];
        if (!joined(n) || !node.loaded) continue;
        node.live = node.live || std::all_of(node.linked.begin(), node.linked.end(), [&](int peer) {
            return !loaded(peer) || (heard(n, peer) && heard(peer, n));
        });
    }
}

bool Membership::all_joined() const {
    for (int n = 0; n < num_nodes(); ++n) {
        if (has_host(n) && !joined(n)) return false;
    }
    return true;
}

bool Membership::all_loaded() const {
    for (int n = 0; n < num_nodes(); ++n) {
        if (has_host(n) && !loaded(n)) return false;
    }
    return true;
}

bool Membership::all_live() const {
    for (int n = 0; n < num_nodes(); ++n) {
        if (has_host(n) && !live(n)) return false;
    }
    return true;
}

std::string Membership::missing_of(int n) const {
    if (!joined(n)) return label(n) + " has not joined";
    if (!loaded(n)) return label(n) + " has not loaded its weights";
    for (const int peer : nodes_[n].linked) {
        if (!loaded(peer) || (heard(n, peer) && heard(peer, n))) continue;
        return fmt::format("{} has not exchanged a first message with {}", label(n), label(peer));
    }
    return label(n) + " is not ready";
}

std::string Membership::missing() const {
    std::string text;
    for (int n = 0; n < num_nodes(); ++n) {
        if (!has_host(n) || live(n)) continue;
        text += (text.empty() ? "" : "; ") + missing_of(n);
    }
    return text;
}

int Membership::first_missing() const {
    const auto first = [&](auto has) {
        for (int n = 0; n < num_nodes(); ++n) {
            if (has_host(n) && !has(n)) return n;
        }
        return -1;
    };
    int node = first([&](int n) { return joined(n); });
    if (node < 0) node = first([&](int n) { return loaded(n); });
    if (node < 0) node = first([&](int n) { return live(n); });
    return node;
}

std::vector<Peer> Membership::peers_of(int n) const {
    std::vector<Peer> peers;
    for (const int other : nodes_[n].linked) {
        const Node& peer = nodes_[other];
        if (!joined(other)) {
            peers.push_back({other, 0, {}, peer.epoch});
        } else if (loaded(n) && loaded(other)) {
            peers.push_back({other, peer.epoch, peer.fabric_address, 0});
        }
    }
    return peers;
}

}  // namespace aerie::control
