#include "config/placement.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace aerie {
namespace {

struct Card {
    int node, card;
};

std::vector<Card> cards_of(const Config& config, const std::vector<std::string>& names) {
    std::vector<Card> cards;
    for (const std::string& name : names) {
        for (int node = 0; node < config.cluster.nodes; ++node) {
            if (config.node_name(node) != name) continue;
            for (int card = 0; card < config.cluster.gpus_per_node; ++card) {
                cards.push_back({node, card});
            }
        }
    }
    return cards;
}

void add_replicas(Placement& placement, Role role, const std::vector<Card>& cards, int tp_size,
                  int cp_size) {
    const int size = tp_size * cp_size;
    const int num_replicas = static_cast<int>(cards.size()) / size;
    for (int dp_rank = 0; dp_rank < num_replicas; ++dp_rank) {
        AttentionReplica replica{.role = role,
                                 .replica = static_cast<int>(placement.replicas.size()),
                                 .dp_rank = dp_rank,
                                 .node = cards[dp_rank * size].node,
                                 .tp_size = tp_size,
                                 .cp_size = cp_size,
                                 .ranks = {},
                                 .expert_copy = 0};
        for (int i = 0; i < size; ++i) {
            const Card card = cards[dp_rank * size + i];
            CHECK_EQ(card.node, replica.node);
            const int rank = static_cast<int>(placement.attention.size());
            placement.attention.push_back({.role = role,
                                           .rank = rank,
                                           .node = card.node,
                                           .card = card.card,
                                           .group = replica.replica,
                                           .tp = i % tp_size,
                                           .cp = i / tp_size});
            placement.nodes[card.node].attention_ranks.push_back(rank);
            replica.ranks.push_back(rank);
        }
        placement.replicas.push_back(std::move(replica));
    }
}

void add_experts(Placement& placement, const std::vector<Card>& cards, int ep_size) {
    for (const Card& card : cards) {
        const int rank = static_cast<int>(placement.experts.size());
        if (rank % ep_size == 0) placement.copies.emplace_back();
        placement.copies.back().ranks.push_back(rank);
        placement.experts.push_back({.role = Role::kExpert,
                                     .rank = rank,
                                     .node = card.node,
                                     .card = card.card,
                                     .group = rank / ep_size,
                                     .ep = rank % ep_size});
        placement.nodes[card.node].expert_ranks.push_back(rank);
    }
}

}  // namespace

const char* name_of(Role role) {
    static constexpr const char* kNames[] = {"prefill", "decode", "unified", "expert"};
    return kNames[static_cast<int>(role)];
}

bool decode_is_unified(const Config& config) {
    const auto& ae = config.ae_separation;
    using Names = std::set<std::string>;
    return Names(ae.prefill_nodes.begin(), ae.prefill_nodes.end()) ==
           Names(ae.decode_attention_nodes.begin(), ae.decode_attention_nodes.end());
}

Placement place(const Config& config) {
    Placement placement;
    placement.separated = config.separated();
    std::vector<std::string> all_nodes;
    for (int node = 0; node < config.cluster.nodes; ++node) {
        placement.nodes.push_back({config.node_name(node), {}, {}});
        all_nodes.push_back(config.node_name(node));
    }
    const auto& ae = config.ae_separation;
    const int tp = config.parallel.attention_tp, cp = config.parallel.attention_cp;
    const auto expert_cards = cards_of(config, ae.enabled ? ae.decode_nodes : all_nodes);
    if (!ae.enabled) {
        add_replicas(placement, Role::kUnified, expert_cards, tp, cp);
    } else if (decode_is_unified(config)) {
        add_replicas(placement, Role::kUnified, cards_of(config, ae.prefill_nodes), tp, cp);
    } else {
        const bool own_cards = !ae.decode_attention_nodes.empty();
        add_replicas(placement, Role::kPrefill, cards_of(config, ae.prefill_nodes), tp, cp);
        add_replicas(placement, Role::kDecode,
                     own_cards ? cards_of(config, ae.decode_attention_nodes) : expert_cards,
                     ae.decode_tp.value_or(tp), ae.decode_cp.value_or(cp));
    }
    add_experts(placement, expert_cards, config.parallel.expert_ep);
    CHECK_EQ(placement.experts.size(), placement.copies.size() * config.parallel.expert_ep);
    for (AttentionReplica& replica : placement.replicas) {
        replica.expert_copy = replica.replica % placement.expert_dp();
    }
    return placement;
}

std::vector<int> Placement::prefill_replicas() const {
    std::vector<int> out;
    for (const auto& replica : replicas) {
        if (replica.role != Role::kDecode) out.push_back(replica.replica);
    }
    return out;
}

std::vector<int> Placement::decode_replicas() const {
    std::vector<int> out;
    for (const auto& replica : replicas) {
        if (replica.role != Role::kPrefill) out.push_back(replica.replica);
    }
    return out;
}

bool Placement::has_role(int node, Role role) const {
    const auto is = [&](const RankPlace& place) {
        return place.node == node && place.role == role;
    };
    return std::any_of(attention.begin(), attention.end(), is) ||
           std::any_of(experts.begin(), experts.end(), is);
}

bool Placement::has_all_experts(const AttentionReplica& replica) const {
    const std::vector<int>& copy = copies[replica.expert_copy].ranks;
    if (copy.size() != 1 || replica.ranks.size() != 1) return false;
    const RankPlace &expert = experts[copy.front()], &own = attention[replica.ranks.front()];
    return expert.node == own.node && expert.card == own.card;
}

bool Placement::experts_serve_others() const {
    return !std::all_of(replicas.begin(), replicas.end(),
                        [this](const auto& replica) { return has_all_experts(replica); });
}

std::pair<int, int> experts_of(int ep_rank, int num_ranks, int num_experts) {
    const int share = num_experts / num_ranks, extra = num_experts % num_ranks;
    const int begin = ep_rank * share + std::min(ep_rank, extra);
    return {begin, begin + share + (ep_rank < extra)};
}

int owner_of(int expert, int num_ranks, int num_experts) {
    const int share = num_experts / num_ranks, extra = num_experts % num_ranks;
    const int in_larger = extra * (share + 1);  // experts of the ranks that hold one more
    return expert < in_larger ? expert / (share + 1) : extra + (expert - in_larger) / share;
}

}  // namespace aerie
