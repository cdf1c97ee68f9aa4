#include "in_process_cluster.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "app/card_support.h"
#include "base/clock.h"
#include "config/environment.h"
#include "tokenizer/tokenizer.h"

namespace aerie::cluster_tests {
namespace {

std::string write_temporary(const std::string& name, const std::string& text) {
    static std::atomic<int> count{0};
    const std::string path =
        ::testing::TempDir() + fmt::format("aerie-{}-{}-{}", getpid(), count++, name);
    std::ofstream(path) << text;
    return path;
}

}  // namespace

std::string three_nodes(const std::string& ae_lines, const std::string& dtype) {
    return fmt::format(R"([cluster]
nodes = 3
gpus_per_node = 1
[ae_separation]
enabled = true
prefill_nodes = ["node-0"]
decode_attention_nodes = ["node-1"]
decode_nodes = ["node-2"]
kv_transfer = "active"
{}
[model]
path = "models/demo"
dtype = "{}"
)",
                       ae_lines, dtype);
}

Cluster::Cluster(const ClusterSpec& spec) : limit_s_(spec.limit_s) {
    CommandLine line;
    line.config_path = write_temporary("settings.json", spec.settings);
    if (!spec.toml.empty()) line.ae_config_path = write_temporary("config.toml", spec.toml);
    line.overrides = spec.overrides;
    if (!spec.toml.empty() && spec.toml.find("enabled = true") != std::string::npos) {
        line.overrides.emplace_back("enable-ae-separation", "true");
    }
    line.overrides.emplace_back("model-path", spec.model.empty() ? AERIE_SOURCE_DIR "/models/demo" : spec.model);
    const bool on_card = spec.device == Device::kCuda;
    line.device = on_card ? DeviceChoice::kCuda : DeviceChoice::kCpu;
    line.share_cards = on_card;
    line.in_process = true;
    Machine machine;
    machine.memory_free = int64_t{8} << 30;
    machine.num_gpus = on_card ? 1 : 0;
    machine.gpu_memory = machine.memory_free;
    loaded_ = load_config(line, machine);
    for (const auto& error : loaded_.diagnostics.errors) ADD_FAILURE() << error;
    CHECK(loaded_.diagnostics.ok(), "the configuration has errors");
    const Status runs = check_card_support(loaded_);
    CHECK(runs.ok(), "{}", runs.message());

    pool_ = std::make_unique<ThreadPool>(ThreadPoolOptions{.num_workers = 1});
    network_ = comm::make_local_network();
    const int num_nodes = loaded_.config.cluster.nodes;
    for (int node = 0; node < num_nodes; ++node) {
        fabrics_.push_back(comm::make_local_fabric(network_, node, 1));
    }
    for (auto& a : fabrics_) {
        for (auto& b : fabrics_) {
            if (a != b) CHECK(a->set_peer(b->node(), 1, b->address()).ok());
        }
    }
    // Not every model of a test has one.
    std::shared_ptr<const Tokenizer> tokenizer;  // shared by the hosts
    if (auto read = Tokenizer::load(loaded_.config.settings.tokenizer_path)) tokenizer = *std::move(read);
    for (int node = 0; node < num_nodes; ++node) {
        auto host = RankHost::start({.loaded = &loaded_,
                                 .node = node,
                                 .fabric = fabrics_[node].get(),
                                 .tokens = this,
                                 .pool = pool_.get(),
                                 .num_token_ids = loaded_.model.vocab_size,
                                 .tokenizer = tokenizer});
        CHECK(host.ok(), "{}", host.message());
        hosts_.push_back(*std::move(host));
    }
}

// All attention first, as the launcher does it.
Cluster::~Cluster() {
    for (const bool experts : {false, true}) {
        for (size_t node = 0; node < hosts_.size(); ++node) {
            if (loaded_.placement.nodes[node].attention_ranks.empty() == experts) hosts_[node]->stop();
        }
    }
    hosts_.clear();
}

RequestId Cluster::start(Request request) {
    {
        std::lock_guard lock(mutex_);
        request.id = next_id_++;
        outcomes_[request.id];
        const int p = static_cast<int>(loaded_.placement.prefill_replicas().size());
        const int d = static_cast<int>(loaded_.placement.decode_replicas().size());
        request.prefill_replica = next_replica_ % p;
        request.decode_replica = next_replica_++ % d;
    }
    for (auto& host : hosts_) host->add(request);
    return request.id;
}

void Cluster::abort(RequestId id) {
    for (auto& host : hosts_) host->abort(id);
}

Outcome Cluster::wait(RequestId id) {
    std::unique_lock lock(mutex_);
    const bool ended = changed_.wait_until(lock, after(limit_s_), [&] {
        return outcomes_[id].finish != FinishReason::kNone;
    });
    EXPECT_TRUE(ended) << "request " << id << " has not ended";
    return outcomes_[id];
}

std::vector<Outcome> Cluster::run(std::vector<Request> requests) {
    std::vector<RequestId> ids;
    for (auto& request : requests) ids.push_back(start(std::move(request)));
    std::vector<Outcome> outcomes;
    for (const RequestId id : ids) outcomes.push_back(wait(id));
    return outcomes;
}

std::vector<Outcome> Cluster::run_alone(const std::vector<Request>& requests) {
    std::vector<Outcome> outcomes;
    for (const auto& request : requests) outcomes.push_back(wait(start(request)));
    return outcomes;
}

void Cluster::emit(std::vector<TokenOut> tokens) {
    {
        std::lock_guard lock(mutex_);
        for (TokenOut& token : tokens) {
            Outcome& outcome = outcomes_[token.id];
            if (!token.tokens.empty()) {
                EXPECT_EQ(token.position, static_cast<int>(outcome.tokens.size())) << token.id;
            }
            outcome.tokens.insert(outcome.tokens.end(), token.tokens.begin(), token.tokens.end());
            outcome.cached_tokens = std::max(outcome.cached_tokens, token.cached_tokens);
            outcome.hashes.insert(outcome.hashes.end(), token.logits_hashes.begin(),
                                  token.logits_hashes.end());
            outcome.kv_hashes.insert(outcome.kv_hashes.end(), token.kv_hashes.begin(),
                                     token.kv_hashes.end());
            outcome.logprobs.insert(outcome.logprobs.end(), token.logprobs.begin(), token.logprobs.end());
            if (token.finish != FinishReason::kNone) {
                EXPECT_EQ(outcome.finish, FinishReason::kNone) << token.id << " ends twice";
                outcome.finish = token.finish;
                outcome.error = token.error;
            }
        }
    }
    changed_.notify_all();
}

void Cluster::flushed(uint64_t, const std::string& why) {
    {
        std::lock_guard lock(mutex_);
        flush_answers_.push_back(why);
    }
    changed_.notify_all();
}

bool Cluster::flush_cache(int node) {
    std::unique_lock lock(mutex_);
    flush_answers_.clear();
    size_t num_replicas = 0;
    for (const auto& replica : loaded_.placement.replicas) {
        num_replicas += node < 0 || replica.node == node;
    }
    for (size_t n = 0; n < hosts_.size(); ++n) {
        if (node < 0 || static_cast<int>(n) == node) hosts_[n]->flush_cache(1);
    }
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20),
                                  [&] { return flush_answers_.size() == num_replicas; }));
    return std::all_of(flush_answers_.begin(), flush_answers_.end(),
                       [](const std::string& why) { return why.empty(); });
}

double Cluster::metric(const std::string& name, const metrics::Labels& with) {
    double sum = 0;
    for (auto& host : hosts_) sum += metrics::total(host->metrics(), name, with);
    return sum;
}

void Cluster::expect_idle() {
    for (int i = 0; i < 200; ++i) {
        if (metric("sglang:num_used_tokens") == 0 && metric("sglang:num_running_reqs") == 0 &&
            metric("sglang:num_queue_reqs") == 0) {
            return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ADD_FAILURE() << "not idle: " << metric("sglang:num_used_tokens") << " tokens in use, "
                  << metric("sglang:num_running_reqs") << " running, "
                  << metric("sglang:num_queue_reqs") << " queued";
}

}  // namespace aerie::cluster_tests
