// Placement: which rank, in which role, lives on which card. A pure function of Config; every host
// computes the same one. The table of roles is that of architecture.md, section 2.
//
// Numbers: attention ranks are counted 0, 1, … over all replicas (P first, then D), expert ranks
// 0, 1, … over all copies. They are the addresses of the exchange. Replicas have one number over
// both roles in the same order.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/config.h"

namespace aerie {

enum class Role { kPrefill, kDecode, kUnified, kExpert };
const char* name_of(Role role);  // "prefill", "decode", "unified", "expert"

struct RankPlace {
    Role role;
    int rank;            // attention rank, or expert rank
    int node, card;      // card: place in the node
    int group;           // replica, or expert copy
    int tp = 0, cp = 0;  // attention only
    int ep = 0;          // expert only
};

struct AttentionReplica {
    Role role;
    int replica;  // over both roles
    int dp_rank;  // within the role
    int node;
    int tp_size, cp_size;
    std::vector<int> ranks;  // attention ranks; [cp * tp_size + tp]
    int expert_copy;         // where its dispatches go while that copy is complete
    int leader() const { return ranks[0]; }
};

struct ExpertCopy {
    std::vector<int> ranks;  // expert ranks; [ep]
};

struct NodePlace {
    std::string name;
    std::vector<int> attention_ranks, expert_ranks;
};

struct Placement {
    bool separated = false;
    std::vector<RankPlace> attention;  // [attention rank]
    std::vector<RankPlace> experts;    // [expert rank]
    std::vector<AttentionReplica> replicas;
    std::vector<ExpertCopy> copies;
    std::vector<NodePlace> nodes;

    int expert_dp() const { return static_cast<int>(copies.size()); }
    int expert_ep() const { return copies.empty() ? 0 : static_cast<int>(copies[0].ranks.size()); }
    // Numbers of the replicas that a request can start on (P or unified), and of those that
    // publish its tokens (D or unified).
    std::vector<int> prefill_replicas() const;
    std::vector<int> decode_replicas() const;
    bool has_role(int node, Role role) const;
    // The replica's one card holds all experts of its copy too: a GPU computes both in one stream
    // (exchange/card_side.h).
    bool has_all_experts(const AttentionReplica& replica) const;
    // Some replica has not: on a GPU, experts then have mailboxes and a stream of their own as well.
    bool experts_serve_others() const;
};

// decode_attention_nodes names the same nodes as prefill_nodes: one unified attention role there.
bool decode_is_unified(const Config& config);

// Requires a config that passed the cross-checks (check_config).
Placement place(const Config& config);

// The experts [begin, end) of expert rank `ep_rank` of `num_ranks`: the first (n mod num_ranks)
// ranks hold one more.
std::pair<int, int> experts_of(int ep_rank, int num_ranks, int num_experts);
// The ep rank that holds `expert`.
int owner_of(int expert, int num_ranks, int num_experts);

}  // namespace aerie
