// RankHost: everything of one node: its attention replicas and expert ranks, a thread a rank, built from
// the placement. It knows fabric and token sink, not how they are made: the same in a process of its
// own and with --in-process.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "comm/fabric.h"
#include "comm/scoped_region.h"
#include "config/load.h"
#include "control/host_runtime.h"
#include "engine/leader.h"
#include "exchange/card_side.h"
#include "expert/expert_rank.h"
#include "grammar/compiler.h"
#include "kernels/rope.h"
#include "metrics/registry.h"
#include "model/expert_weights.h"
#include "model/weight_store.h"
#include "tensor/kv_file.h"
#include "tensor/kv_pool.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

struct RankHostOptions {
    const LoadedConfig* loaded = nullptr;  // outlives the host
    int node = 0;
    comm::Fabric* fabric = nullptr;        // outlives the host
    control::TokenSink* tokens = nullptr;  // outlives the host
    ThreadPool* pool = nullptr;            // outlives the host; shared by all ranks of the process
    int num_token_ids = 0;  // of the tokenizer: ids from here on are never sampled
    // Shared: the host keeps it for the grammars that it compiles; null: it can compile none.
    std::shared_ptr<const Tokenizer> tokenizer = nullptr;
};

class RankHost final : public control::HostRuntime {
  public:
    // Loads the weights of the node's roles and starts the ranks.
    static Result<std::unique_ptr<RankHost>> start(const RankHostOptions& options);
    ~RankHost() override;

    void add(const Request& request) override;
    void abort(RequestId id) override;
    void flush_cache(uint64_t query) override;
    void peers_changed() override {}
    metrics::Snapshot metrics() override;
    std::vector<double> rank_idle_seconds() override;
    void stop() override;

  private:
    struct Replica {
        AttentionReplica place;
        std::vector<comm::ScopedRegion> regions;          // [cp] of the pools; unified: none
        std::vector<std::unique_ptr<KvPool>> pools;       // [cp]
        std::vector<std::unique_ptr<KvPool>> host_pools;  // [cp], null without hicache_size_gb
        std::vector<std::unique_ptr<KvFile>> files;       // [cp], none without hicache_path
        std::vector<std::unique_ptr<model::AttentionWeights>> weights;  // [tp]
        std::unique_ptr<engine::Team> team;
        std::unique_ptr<engine::Leader> leader;
        std::thread thread;
    };

    explicit RankHost(const RankHostOptions& options);
    Status load_experts();
    Status load_replicas();
    Status load_replica(Replica& replica);
    Status make_pools(Replica& replica);
    void make_files(Replica& replica, KvPoolShape shape);
    Result<engine::Team::Rank> make_rank(const Replica& replica, const model::RankPlaceInReplica& place,
                                         const metrics::AttentionMetrics& metrics,
                                         comm::Group& group);
    std::unique_ptr<exchange::AttentionSide> make_exchange(const Replica& replica,
                                                           const model::RankPlaceInReplica& place,
                                                           const metrics::AttentionMetrics& metrics,
                                                           Stream& stream);
    Status make_leader(Replica& replica, const metrics::AttentionMetrics& metrics);
    std::unique_ptr<engine::KvHandoff> make_handoff(Replica& replica,
                                                    const metrics::AttentionMetrics& metrics);
    void run_threads();

    // Facts of the configuration, in the units of the parts.
    const Config& config() const { return options_.loaded->config; }
    const ModelConfig& model() const { return options_.loaded->model; }
    const Placement& placement() const { return options_.loaded->placement; }
    Device device() const {
        return config().device == DeviceChoice::kCuda ? Device::kCuda : Device::kCpu;
    }
    DType compute() const;
    bool deterministic() const;
    bool with_mtp() const;
    int64_t tile_rows() const;
    bool computes_experts(const AttentionReplica& replica) const {
        return device() == Device::kCuda && placement().has_all_experts(replica);
    }
    bool pushes_kv(const AttentionReplica& replica) const {
        return replica.role == Role::kPrefill &&
               config().ae_separation.kv_transfer != KvTransfer::kPassive;
    }
    int max_running(const AttentionReplica& replica) const;
    int step_rows_max(const AttentionReplica& replica) const;
    int logits_rows_max(const AttentionReplica& replica) const;
    std::vector<int64_t> graph_rows(const AttentionReplica& replica) const;
    int dispatch_rows_max(const AttentionReplica& replica) const;
    int64_t max_request_tokens() const;
    cache::KvBlocksOptions kv_blocks_options(const AttentionReplica& replica) const;
    schedule::SchedulerOptions scheduler_options(const AttentionReplica& replica) const;
    exchange::AttentionSideOptions attention_side_options(int attention_rank) const;
    exchange::ExpertSideOptions expert_side_options(const RankPlace& place) const;
    std::optional<expert::CardExpertsOptions> card_experts_options(
        const exchange::ExpertSideOptions& side) const;
    exchange::CardSideOptions card_side_options(const AttentionReplica& replica, Stream& stream) const;

    const RankHostOptions options_;
    metrics::Registry registry_;
    std::unique_ptr<model::WeightStore> weights_;
    std::unique_ptr<kernels::RopeTable> rope_;
    std::unique_ptr<grammar::Compiler> grammars_;  // of all replicas; null where none is
    std::vector<std::unique_ptr<expert::ExpertRank>> experts_;
    model::RoutedExperts card_experts_;  // of the card, for its expert rank and attention alike
    std::vector<std::thread> expert_threads_;
    std::vector<std::unique_ptr<Replica>> replicas_;
    bool stopped_ = false;
};

}  // namespace aerie
