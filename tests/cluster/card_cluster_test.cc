// Hosts that share a card: what they make of a request together has the bits that one host gives it,
// however KV gets from one to the other. Skipped where there is no card.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fault.h"
#include "golden.h"
#include "in_process_cluster.h"
#include "tensor/card.h"

namespace aerie::cluster_tests {
namespace {

// 16 short prompts, 4 long ones (437 to 4,054 tokens), 8 sampled, of which half are told logprobs.
std::vector<Request> all_requests() {
    std::vector<Request> requests;
    for (const char* file : {"golden_greedy.json", "golden_long.json"}) {
        for (const auto& golden : read_goldens(file))
            requests.push_back(greedy(golden.prompt, static_cast<int>(golden.output.size()), true));
    }
    for (uint64_t seed = 0; seed < 8; ++seed) {
        Request request = requests[seed];
        request.sampling.temperature = 0.9;
        request.sampling.top_p = 0.95;
        request.sampling.seed = 1000 + seed;
        request.sampling.max_new_tokens = 48;
        request.sampling.ignore_eos = true;
        request.sampling.num_top_logprobs = seed % 2 == 0 ? 2 : -1;
        requests.push_back(std::move(request));
    }
    return requests;
}

// P, and D with the experts.
std::string two_nodes(const std::string& kv_transfer) {
    return fmt::format(R"([cluster]
nodes = 2
gpus_per_node = 1
[ae_separation]
enabled = true
prefill_nodes = ["node-0"]
decode_nodes = ["node-1"]
kv_transfer = "{}"
[model]
path = "models/demo"
)",
                       kv_transfer);
}

// Attention on one node, experts on the other.
constexpr const char* kUnified = R"([cluster]
nodes = 2
gpus_per_node = 1
[ae_separation]
enabled = true
prefill_nodes = ["node-0"]
decode_attention_nodes = ["node-0"]
decode_nodes = ["node-1"]
[model]
path = "models/demo"
)";

ClusterSpec spec_of(const std::string& toml, int chunk = 8192) {
    ClusterSpec spec;
    spec.toml = toml.empty() ? "[ae_separation]\nenabled = false\n" : toml;
    spec.settings = fmt::format(R"({{"chunked_prefill_size": {}, "disable_radix_cache": true,
        "enable_deterministic_inference": true, "max_total_tokens": 32768,
        "context_length": 8192, "max_running_requests": 16}})",
                                chunk);
    spec.device = Device::kCuda;
    return spec;
}

class CardCluster : public testing::Test {
  protected:
    void SetUp() override {
        if (card::count() == 0) GTEST_SKIP() << "no card";
    }
};

std::vector<Outcome> outcomes_of(const ClusterSpec& spec, const std::vector<Request>& requests) {
    Cluster cluster(spec);
    auto outcomes = cluster.run(requests);
    for (size_t i = 0; i < outcomes.size(); ++i) {
        EXPECT_NE(outcomes[i].finish, FinishReason::kAbort) << i << ": " << outcomes[i].error;
        EXPECT_EQ(outcomes[i].hashes.size(), outcomes[i].tokens.size()) << i;
    }
    cluster.expect_idle();
    return outcomes;
}

std::vector<size_t> differing(const std::vector<Outcome>& a, const std::vector<Outcome>& b) {
    std::vector<size_t> found;
    for (size_t i = 0; i < a.size(); ++i)
        if (!(a[i] == b[i])) found.push_back(i);
    return found;
}

TEST_F(CardCluster, HostsThatShareACardGiveTheBitsOfOne) {
    const auto requests = all_requests();
    const auto reference = outcomes_of(spec_of(""), requests);
    const std::pair<const char*, ClusterSpec> ways[] = {
        {"P, D with E; pushed", spec_of(two_nodes("active"))},
        {"P, D with E; pushed in chunks", spec_of(two_nodes("active"), 256)},
        {"P, D with E; pulled", spec_of(two_nodes("passive"))},
        {"P, D, E", spec_of(three_nodes())},
        {"A, E", spec_of(kUnified)},
    };
    for (const auto& [name, spec] : ways)
        EXPECT_THAT(differing(reference, outcomes_of(spec, requests)), testing::IsEmpty()) << name;
}

// Sampled requests in one batch: those that want nothing but tokens, which the card draws, beside others
// whose logits the host must see. With hash_logits the host sees, and draws from, all of them.
std::vector<Request> sampled_requests(bool hash_logits) {
    const auto goldens = read_goldens("golden_greedy.json");
    std::vector<Request> requests;
    for (uint64_t i = 0; i < 32; ++i) {
        Request request = greedy(goldens[i % goldens.size()].prompt, 40, hash_logits);
        SamplingParams& sampling = request.sampling;
        sampling.ignore_eos = true;
        sampling.temperature = i % 5 == 0 ? 0 : 1.5;
        sampling.top_p = i % 2 == 0 ? 0.9 : 1;
        sampling.top_k = i % 3 == 0 ? 20 : -1;
        sampling.min_p = i % 7 == 0 ? 0.05 : 0;
        sampling.seed = i;
        if (i % 8 == 1) sampling.frequency_penalty = 0.5;
        if (i % 8 == 2) sampling.logit_bias = {{.id = 100, .bias = 4}};
        if (i % 8 == 3) sampling.num_top_logprobs = 1;
        if (i % 8 == 4) sampling.min_new_tokens = 8;
        requests.push_back(std::move(request));
    }
    return requests;
}

std::vector<std::vector<int32_t>> tokens_of(const std::vector<Request>& requests) {
    Cluster cluster(spec_of(""));
    std::vector<std::vector<int32_t>> tokens;
    for (const Outcome& outcome : cluster.run(requests)) tokens.push_back(outcome.tokens);
    return tokens;
}

TEST_F(CardCluster, TokensDrawnOnTheCardAreTheHosts) {
    const auto by_host = tokens_of(sampled_requests(true));
    EXPECT_EQ(tokens_of(sampled_requests(false)), by_host);
    planted_fault = static_cast<int>(Fault::kDrawMoved);
    const auto moved = tokens_of(sampled_requests(false));
    planted_fault = 0;
    int num_by_card = 0, num_moved = 0;
    for (size_t i = 0; i < moved.size(); ++i) {
        const bool by_card = (i % 8 == 0 || i % 8 >= 4) && i % 5 != 0;
        num_by_card += by_card;
        num_moved += moved[i] != by_host[i];
        // Of the host's draws, and of greedy ones, nothing is moved.
        if (!by_card) EXPECT_EQ(moved[i], by_host[i]) << i;
    }
    EXPECT_GE(num_moved, num_by_card / 2);  // where few tokens are likely, all may be as before
}

TEST_F(CardCluster, EveryPlantedFaultIsSeen) {
    auto requests = all_requests();
    requests.resize(20);
    const ClusterSpec spec = spec_of(two_nodes("active"));
    const auto reference = outcomes_of(spec, requests);
    for (const Fault fault : {Fault::kExpertDropped, Fault::kKvBlockZeroed, Fault::kCombineLost}) {
        planted_fault = static_cast<int>(fault);
        const auto faulty = outcomes_of(spec, requests);
        planted_fault = 0;
        EXPECT_THAT(differing(reference, faulty), testing::Not(testing::IsEmpty()))
            << "fault " << static_cast<int>(fault);
    }
}

// 100 requests for a pool that holds a tenth of them, every eighth cancelled at a moment of its own. The
// others' answers stay as they are alone, and nothing is left in use.
void expect_answers_as_alone(const std::string& toml, bool retracts) {
    std::vector<Request> requests;
    const auto goldens = read_goldens("golden_greedy.json");
    for (uint64_t i = 0; i < 100; ++i) {
        const int length = 16 + static_cast<int>(i * 37 % 300);
        Request request = greedy(goldens[i % goldens.size()].prompt, length, true);
        request.sampling.ignore_eos = true;
        request.sampling.temperature = 0.8;
        request.sampling.seed = i;
        requests.push_back(std::move(request));
    }
    ClusterSpec spec = spec_of(toml);
    spec.limit_s = 20;
    spec.settings = R"({"chunked_prefill_size": 64, "disable_radix_cache": true, "page_size": 16,
        "enable_deterministic_inference": true, "max_total_tokens": 2048,
        "schedule_conservativeness": 0.02, "context_length": 1024, "max_running_requests": 16})";
    std::vector<Outcome> alone;
    {
        Cluster cluster(spec);
        for (size_t i = 0; i < requests.size(); i += 9) {
            if (i % 8 != 0) alone.push_back(cluster.run_alone({requests[i]})[0]);
        }
    }
    Cluster cluster(spec);
    std::vector<RequestId> ids;
    for (size_t i = 0; i < requests.size(); ++i) {
        ids.push_back(cluster.start(requests[i]));
        if (i % 8 == i / 8 % 8) cluster.abort(ids[i - i % 8]);
    }
    size_t num_compared = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
        if (i % 8 == 0) continue;  // cancelled, perhaps after its end; nothing more is told of it
        const Outcome outcome = cluster.wait(ids[i]);
        if (i % 9 == 0) EXPECT_TRUE(outcome == alone[num_compared++]) << i;
    }
    EXPECT_EQ(num_compared, alone.size());
    EXPECT_EQ(cluster.metric("sglang:num_retracted_requests_total") > 0, retracts);
    cluster.expect_idle();
}

TEST_F(CardCluster, CancelsAndAFullPoolLeaveNothingBehind) {
    expect_answers_as_alone(two_nodes("active_passive"), false);
}

TEST_F(CardCluster, RetractedRequestsAnswerAsAlone) { expect_answers_as_alone("", true); }

}  // namespace
}  // namespace aerie::cluster_tests
