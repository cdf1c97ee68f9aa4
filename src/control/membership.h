// Membership: which hosts are there, and how far each has come. Bookkeeping only; the hub holds its
// lock around every call.
//
// A host is joined (its session is accepted), then loaded (its ranks listen), then live: it and each
// loaded host that it exchanges messages with have had a first message from each other. It stays
// live until it is lost; a peer's death does not change that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/placement.h"
#include "control/host_link.h"

namespace aerie::control {

// What must be equal in every process.
struct BuildIdentity {
    std::string version;
    uint64_t config_fingerprint = 0;
    uint64_t model_fingerprint = 0;
};

// "node-1 (decode, expert)": the node with its roles.
std::string host_label(const Placement& placement, int node);

class Membership {
  public:
    Membership(const Placement& placement, BuildIdentity expected);

    int num_nodes() const { return static_cast<int>(nodes_.size()); }
    bool has_attention(int node) const { return nodes_[node].attention; }
    // Nodes without a role have no host.
    bool has_host(int node) const { return nodes_[node].attention || nodes_[node].expert; }
    const std::string& label(int node) const { return nodes_[node].label; }

    // Whether this host may join; the error is for its log.
    Status check(const HostIdentity& host) const;
    // Returns true where an earlier life of the node was known: this is a restart. A life that is
    // still joined must have been lost() before.
    bool join(const HostIdentity& host, uint64_t session);
    void ready(int node, bool loaded, std::vector<ReachedPeer> reached);
    void lose(int node);

    bool joined(int node) const { return nodes_[node].session != 0; }
    bool loaded(int node) const { return nodes_[node].loaded; }
    bool live(int node) const { return nodes_[node].live; }
    uint64_t session(int node) const { return nodes_[node].session; }  // 0: not joined
    uint32_t epoch(int node) const { return nodes_[node].epoch; }      // the newest known
    bool all_joined() const;
    bool all_loaded() const;
    bool all_live() const;
    // The nodes that have a host which is not live, each with what is missing.
    std::string missing() const;
    // The first node that has not joined, else not loaded, else is not live; -1: none.
    int first_missing() const;

    // What a node is told of those it exchanges messages with. Two hosts are told of each other only
    // when both are loaded: what is sent to ranks that do not listen yet is lost. Until then a live
    // host is left out, for the other side may have connected first; a dead one is named at once.
    std::vector<Peer> peers_of(int node) const;

  private:
    struct Node {
        bool attention = false, expert = false;
        std::string label;
        std::vector<int> linked;  // nodes that it exchanges messages with
        uint64_t session = 0;
        uint32_t epoch = 0;
        std::string fabric_address;
        bool loaded = false, live = false;
        std::vector<ReachedPeer> reached;
    };
    bool heard(int node, int from) const;
    void find_live();
    std::string missing_of(int node) const;

    const BuildIdentity expected_;
    std::vector<Node> nodes_;
};

}  // namespace aerie::control
