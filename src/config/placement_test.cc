#include "config/placement.h"

namespace aerie {
namespace {

// Four nodes of eight cards, as in configs/four-node.
Config four_node() {
    Config config;
    config.cluster.nodes = 4;
    config.cluster.gpus_per_node = 8;
    config.parallel = {
        .attention_tp = 4, .attention_cp = 2, .expert_ep = 8, .expert_dp = 2, .global_dp = 2};
    config.ae_separation.enabled = true;
    config.ae_separation.prefill_nodes = {"node-0", "node-1"};
    config.ae_separation.decode_nodes = {"node-2", "node-3"};
    return config;
}

TEST(Placement, DecodeSharesTheCardsOfTheExperts) {
    const Placement p = place(four_node());
    ASSERT_EQ(p.replicas.size(), 4u);
    ASSERT_EQ(p.attention.size(), 32u);
    ASSERT_EQ(p.experts.size(), 16u);
    EXPECT_EQ(p.expert_dp(), 2);
    EXPECT_EQ(p.expert_ep(), 8);
    EXPECT_EQ(p.prefill_replicas(), (std::vector<int>{0, 1}));
    EXPECT_EQ(p.decode_replicas(), (std::vector<int>{2, 3}));
    const AttentionReplica& d1 = p.replicas[3];
    EXPECT_EQ(d1.role, Role::kDecode);
    EXPECT_EQ(d1.dp_rank, 1);
    EXPECT_EQ(d1.node, 3);
    EXPECT_EQ(d1.leader(), 24);
    EXPECT_EQ(d1.expert_copy, 1);
    // Rank 29 is the replica's sixth: tp 1, cp 1.
    EXPECT_EQ(p.attention[29].tp, 1);
    EXPECT_EQ(p.attention[29].cp, 1);
    EXPECT_EQ(p.attention[29].card, 5);
    // Expert rank 9: copy 1, ep 1, on the card of attention rank 25.
    EXPECT_EQ(p.experts[9].group, 1);
    EXPECT_EQ(p.experts[9].ep, 1);
    EXPECT_EQ(p.experts[9].node, p.attention[25].node);
    EXPECT_EQ(p.experts[9].card, p.attention[25].card);
    EXPECT_TRUE(p.has_role(0, Role::kPrefill));
    EXPECT_FALSE(p.has_role(0, Role::kExpert));
    EXPECT_TRUE(p.has_role(3, Role::kExpert));
    EXPECT_EQ(p.nodes[2].attention_ranks.size(), 8u);
}

TEST(Placement, DecodeAttentionOnItsOwnNodesWithItsOwnSplit) {
    Config config = four_node();
    config.parallel.expert_dp = 1;
    config.ae_separation.decode_nodes = {"node-3"};
    config.ae_separation.decode_attention_nodes = {"node-2"};
    config.ae_separation.decode_tp = 2;
    config.ae_separation.decode_cp = 1;
    const Placement p = place(config);
    EXPECT_EQ(p.decode_replicas().size(), 4u);
    EXPECT_EQ(p.replicas[2].tp_size, 2);
    EXPECT_EQ(p.replicas[5].node, 2);
    EXPECT_EQ(p.replicas[5].ranks, (std::vector<int>{22, 23}));
    EXPECT_TRUE(p.nodes[2].expert_ranks.empty());
    EXPECT_TRUE(p.nodes[3].attention_ranks.empty());
    for (const auto& replica : p.replicas) EXPECT_EQ(replica.expert_copy, 0);
}

TEST(Placement, TheSameNodesForBothAttentionsAreOneUnifiedRole) {
    Config config = four_node();
    config.ae_separation.decode_attention_nodes = {"node-1", "node-0"};  // the order is free
    const Placement p = place(config);
    EXPECT_EQ(p.replicas.size(), 2u);
    EXPECT_EQ(p.replicas[0].role, Role::kUnified);
    EXPECT_EQ(p.prefill_replicas(), p.decode_replicas());
}

TEST(Placement, NodesKeepTheOrderOfTheList) {
    Config config = four_node();
    config.ae_separation.prefill_nodes = {"node-1", "node-0"};
    EXPECT_EQ(place(config).replicas[0].node, 1);
}

TEST(Placement, WithoutSeparationEveryCardHasBothRoles) {
    Config config = four_node();
    config.ae_separation.enabled = false;
    const Placement p = place(config);
    EXPECT_EQ(p.replicas.size(), 4u);
    EXPECT_EQ(p.copies.size(), 4u);
    ASSERT_EQ(p.attention.size(), 32u);
    ASSERT_EQ(p.experts.size(), 32u);
    for (int i = 0; i < 32; ++i) {
        EXPECT_EQ(p.attention[i].node, p.experts[i].node);
        EXPECT_EQ(p.attention[i].card, p.experts[i].card);
    }
    for (const auto& replica : p.replicas) EXPECT_EQ(replica.expert_copy, replica.replica);
}

TEST(Placement, ACardWithAllExpertsIsTold) {
    Config config;
    config.cluster.nodes = 3;
    EXPECT_TRUE(place(config).has_all_experts(place(config).replicas[2]));  // a copy on each
    EXPECT_FALSE(place(config).experts_serve_others());
    config.ae_separation.enabled = true;
    config.ae_separation.prefill_nodes = {"node-0"};
    config.ae_separation.decode_nodes = {"node-1"};
    config.cluster.nodes = 2;
    const Placement shared = place(config);
    EXPECT_FALSE(shared.has_all_experts(shared.replicas[0]));
    EXPECT_TRUE(shared.has_all_experts(shared.replicas[1]));
    EXPECT_TRUE(shared.experts_serve_others());
    config.cluster.nodes = 3;
    config.ae_separation.decode_attention_nodes = {"node-1"};
    config.ae_separation.decode_nodes = {"node-2"};
    EXPECT_FALSE(place(config).has_all_experts(place(config).replicas[1]));
}

TEST(Placement, FirstExpertRanksHoldOneMore) {
    for (int num_experts : {1, 7, 32, 256, 257}) {
        for (int num_ranks = 1; num_ranks <= std::min(num_experts, 40); ++num_ranks) {
            int next = 0;
            for (int rank = 0; rank < num_ranks; ++rank) {
                const auto [begin, end] = experts_of(rank, num_ranks, num_experts);
                ASSERT_EQ(begin, next);
                ASSERT_EQ(end - begin, num_experts / num_ranks + (rank < num_experts % num_ranks));
                for (int expert = begin; expert < end; ++expert) {
                    ASSERT_EQ(owner_of(expert, num_ranks, num_experts), rank);
                }
                next = end;
            }
            ASSERT_EQ(next, num_experts);
        }
    }
}

}  // namespace
}  // namespace aerie
