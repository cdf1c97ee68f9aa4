// A cluster whose hosts live in this process, without frontend and control plane: requests go in,
// tokens come out. For tests of what attention and expert hosts do together.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "app/rank_host.h"

namespace aerie::cluster_tests {

// Keys as the command line has them, e.g. {"attention-tp", "2"}; the rest is the demo model's pair.
struct ClusterSpec {
    std::string toml = {};  // config.toml; empty: nothing is separated
    std::string settings = "{}";
    std::vector<std::pair<std::string, std::string>> overrides = {};
    std::string model = {};  // folder; empty: the demo model's
    double limit_s = 300;   // that is waited for a request
    // On a card, which all hosts share: each gets 8 GiB of it.
    Device device = Device::kCpu;
};

// config.toml of three nodes with a card each: P, D and E.
std::string three_nodes(const std::string& ae_lines = "", const std::string& dtype = "bfloat16");

struct Outcome {
    std::vector<int32_t> tokens;
    std::vector<uint64_t> hashes;  // of the logits at every computed position, where asked for
    int cached_tokens = 0;
    FinishReason finish = FinishReason::kNone;
    std::string error;
    std::vector<TokenLogprobs> logprobs;  // of each token, where asked for
    std::vector<uint64_t> kv_hashes;      // TokenOut::kv_hashes
    // But for kv_hashes: not everywhere does KV move.
    bool operator==(const Outcome& other) const {
        return std::tie(tokens, hashes, logprobs, finish, error) ==
               std::tie(other.tokens, other.hashes, other.logprobs, other.finish, other.error);
    }
};

class Cluster final : control::TokenSink {
  public:
    explicit Cluster(const ClusterSpec& spec);
    ~Cluster();

    // Runs the requests, all at once; the ids are given here. Outcomes in their order.
    std::vector<Outcome> run(std::vector<Request> requests);
    // One after another.
    std::vector<Outcome> run_alone(const std::vector<Request>& requests);

    RequestId start(Request request);
    void abort(RequestId id);
    Outcome wait(RequestId id);
    // Sum of a metric's series that have these labels, over all hosts.
    double metric(const std::string& name, const metrics::Labels& with = {});
    // Every replica, or those of one node, forgets its cached prefixes; false where one refuses.
    bool flush_cache(int node = -1);
    // Waits until no request is known and all blocks are free, or only the prefix cache's.
    void expect_idle();
    const LoadedConfig& loaded() const { return loaded_; }

  private:
    void emit(std::vector<TokenOut> tokens) override;
    void flushed(uint64_t query, const std::string& why) override;

    const double limit_s_;
    LoadedConfig loaded_;
    std::unique_ptr<ThreadPool> pool_;
    std::shared_ptr<comm::LocalNetwork> network_;
    std::vector<std::unique_ptr<comm::Fabric>> fabrics_;
    std::vector<std::unique_ptr<RankHost>> hosts_;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<RequestId, Outcome> outcomes_;
    std::vector<std::string> flush_answers_;
    RequestId next_id_ = 1;
    int next_replica_ = 0;
};

}  // namespace aerie::cluster_tests
