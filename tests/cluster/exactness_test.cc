// No way of running a request changes a bit of its logits (the prefix cache apart, which
// prefix_exactness_test.cc adds): compared are the tokens and a hash of the
// logits' bits at every position, of greedy, long and sampled requests, some of these with penalties
// and logprobs. Planted faults show that the
// comparison sees what it is there to see.
#include <gtest/gtest.h>

#include "base/fault.h"
#include "golden.h"
#include "in_process_cluster.h"

namespace aerie::cluster_tests {
namespace {

// What it samples depends on all that it has said, and what it is told on the logits alone.
void penalize(Request& request) {
    request.sampling.frequency_penalty = 0.3;
    request.sampling.presence_penalty = 0.2;
    request.sampling.repetition_penalty = 1.1;
    request.sampling.num_top_logprobs = 2;
}

// 16 short prompts, 4 long ones (437 to 4,054 tokens), 20 sampled with their own seeds.
std::vector<Request> all_requests() {
    std::vector<Request> requests;
    for (const auto& golden : read_goldens("golden_greedy.json")) {
        requests.push_back(greedy(golden.prompt, static_cast<int>(golden.output.size()), true));
    }
    for (const auto& golden : read_goldens("golden_long.json")) {
        requests.push_back(greedy(golden.prompt, static_cast<int>(golden.output.size()), true));
    }
    const auto goldens = read_goldens("golden_greedy.json");
    for (uint64_t seed = 0; seed < 20; ++seed) {
        Request request = greedy(goldens[seed % goldens.size()].prompt, 24, true);
        request.sampling = {.temperature = 0.9, .top_p = 0.95, .top_k = seed % 2 == 0 ? -1 : 40,
                            .min_p = seed % 3 == 0 ? 0.02 : 0.0, .seed = 1000 + seed,
                            .max_new_tokens = 24, .ignore_eos = true, .stop_token_ids = {},
                            .logit_bias = {}, .logprob_ids = {}};
        if (seed % 4 == 1) penalize(request);
        requests.push_back(std::move(request));
    }
    return requests;
}

struct Way {
    const char* name;
    bool separated;
    int chunk = 8192;
    int microbatches = 0;  // 0: chosen
    bool alone = false;
    bool tiny_pool = false;  // requests are retracted and computed again; long prompts are left out
};

ClusterSpec spec_of(const Way& way, int page_size) {
    ClusterSpec spec;
    std::string settings = fmt::format(R"({{"page_size": {}, "chunked_prefill_size": {}, "disable_radix_cache": true)",
                                       page_size, way.chunk);
    if (way.tiny_pool) {
        settings += fmt::format(R"(, "max_total_tokens": {}, "schedule_conservativeness": 0.02)", 12 * page_size);
    }
    spec.settings = settings + "}";
    const std::string microbatches =
        way.microbatches > 0 ? fmt::format("microbatches = {}", way.microbatches) : std::string();
    spec.toml = way.separated ? three_nodes(microbatches)
                              : fmt::format("[ae_separation]\nenabled = false\n{}\n", microbatches);
    return spec;
}

std::vector<Outcome> outcomes_of(const Way& way, int page_size, std::vector<Request> requests) {
    if (way.tiny_pool) {
        for (auto& request : requests) {
            if (request.prompt.size() > 400) request = requests[0];
        }
    }
    Cluster cluster(spec_of(way, page_size));
    auto outcomes = way.alone ? cluster.run_alone(requests) : cluster.run(requests);
    for (size_t i = 0; i < outcomes.size(); ++i) {
        EXPECT_NE(outcomes[i].finish, FinishReason::kAbort) << way.name << " " << i << ": " << outcomes[i].error;
        // One hash for each position that was computed: the prompt and all output but the last token.
        EXPECT_EQ(outcomes[i].hashes.size(), requests[i].prompt.size() + outcomes[i].tokens.size() - 1)
            << way.name << " " << i;
    }
    cluster.expect_idle();
    EXPECT_EQ(cluster.metric("sglang:num_retracted_requests_total") > 0, way.tiny_pool) << way.name;
    return outcomes;
}

// The requests whose tokens, hashes or logprobs differ.
std::vector<size_t> differing(const std::vector<Outcome>& a, const std::vector<Outcome>& b) {
    std::vector<size_t> found;
    for (size_t i = 0; i < a.size(); ++i) {
        if (a[i].tokens != b[i].tokens || a[i].hashes != b[i].hashes ||
            a[i].logprobs != b[i].logprobs)
            found.push_back(i);
    }
    return found;
}

class Exactness : public testing::TestWithParam<int> {};

TEST_P(Exactness, NoWayOfRunningChangesABit) {
    const int page_size = GetParam();
    const auto requests = all_requests();
    const auto reference = outcomes_of({.name = "colocated", .separated = false}, page_size, requests);
    std::vector<Way> ways = {
        {.name = "separated", .separated = true},
        {.name = "separated, alone", .separated = true, .alone = true},
        {.name = "separated, chunk 64", .separated = true, .chunk = 64},
        {.name = "colocated, 1 microbatch", .separated = false, .microbatches = 1},
        {.name = "separated, 1 microbatch", .separated = true, .microbatches = 1},
        {.name = "separated, 2 microbatches", .separated = true, .microbatches = 2},
        {.name = "separated, 3 microbatches", .separated = true, .microbatches = 3},
    };
    if (page_size == 16) {  // in pages of 64 these answers hardly grow
        ways.push_back({.name = "colocated, retracted", .separated = false, .tiny_pool = true});
        ways.push_back({.name = "colocated, chunk 16", .separated = false, .chunk = 16});
        ways.push_back({.name = "separated, chunk 16", .separated = true, .chunk = 16});
    }
    for (const Way& way : ways) {
        const auto outcomes = outcomes_of(way, page_size, requests);
        for (const size_t i : differing(reference, outcomes)) {
            if (way.tiny_pool && requests[i].prompt.size() > 400) continue;
            ADD_FAILURE() << way.name << ": request " << i << " differs";
        }
    }
}
INSTANTIATE_TEST_SUITE_P(PageSize, Exactness, testing::Values(16, 64),
                         [](const auto& info) { return std::to_string(info.param); });

// A decode replica keeps room for the next 512 tokens of each request, so that only longer answers
// are ever retracted; they go back to prefill with what they have said.
TEST(ExactnessTest, WhatDecodeRetractsGoesOnWithTheSameBits) {
    std::vector<Request> requests;
    const auto goldens = read_goldens("golden_greedy.json");
    for (uint64_t seed = 0; seed < 3; ++seed) {
        Request request = greedy(goldens[seed].prompt, 900, true);
        request.sampling.temperature = 0.8;
        request.sampling.seed = seed;
        request.sampling.ignore_eos = true;
        penalize(request);
        requests.push_back(std::move(request));
    }
    std::vector<Outcome> outcomes[2];
    for (const bool small : {false, true}) {
        Cluster cluster({.toml = three_nodes(),
                         .settings = small ? R"({"disable_radix_cache": true, "max_total_tokens": 2304})"
                                           : R"({"disable_radix_cache": true})"});
        outcomes[small] = cluster.run(requests);
        EXPECT_EQ(cluster.metric("sglang:num_retracted_requests_total") > 0, small);
        cluster.expect_idle();
    }
    EXPECT_THAT(differing(outcomes[0], outcomes[1]), testing::IsEmpty());
    for (const Outcome& outcome : outcomes[1]) {
        EXPECT_EQ(outcome.tokens.size(), 900u) << outcome.error;
        EXPECT_EQ(outcome.logprobs.size(), 900u);
    }
}

TEST(ExactnessTest, EveryPlantedFaultIsSeen) {
    std::vector<Request> requests;
    for (const auto& golden : read_goldens("golden_greedy.json")) {
        requests.push_back(greedy(golden.prompt, static_cast<int>(golden.output.size()), true));
    }
    const Way way{.name = "separated", .separated = true};
    const auto reference = outcomes_of(way, 64, requests);
    EXPECT_THAT(differing(reference, outcomes_of(way, 64, requests)), testing::IsEmpty());
    for (const Fault fault : {Fault::kExpertDropped, Fault::kKvBlockZeroed, Fault::kCombineLost,
                              Fault::kRoundingMoved}) {
        planted_fault = static_cast<int>(fault);
        const auto faulty = outcomes_of(way, 64, requests);
        planted_fault = 0;
        EXPECT_FALSE(differing(reference, faulty).empty()) << "fault " << static_cast<int>(fault);
    }
}

}  // namespace
}  // namespace aerie::cluster_tests
