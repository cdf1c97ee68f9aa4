// Drafting changes no token and no bit: with MTP each request gives the tokens, the logprobs and the
// logits' hashes at every position that it gives without, however it is run. A wrong MTP layer only
// costs acceptance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fault.h"
#include "golden.h"
#include "in_process_cluster.h"
#include "pressure.h"

namespace aerie::cluster_tests {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kNumSampled = 20;
#else
constexpr int kNumSampled = 200;
#endif

// The goldens, sampled requests with every rule that looks at single tokens, and at last a long one.
std::vector<Request> all_requests() {
    std::vector<Request> requests;
    const auto goldens = read_goldens("golden_greedy.json");
    for (const auto& golden : goldens) {
        requests.push_back(greedy(golden.prompt, static_cast<int>(golden.output.size()), true));
    }
    for (int i = 0; i < kNumSampled; ++i) {
        Request request = greedy(goldens[i % goldens.size()].prompt, 1 + i % 24, true);
        SamplingParams& sampling = request.sampling;
        sampling.temperature = 0.6 + 0.1 * (i % 5);
        sampling.seed = 1000 + i;
        sampling.top_p = i % 2 == 0 ? 1.0 : 0.95;
        sampling.top_k = i % 3 == 0 ? 40 : -1;
        sampling.ignore_eos = i % 4 == 0;
        if (i % 5 == 1) sampling.frequency_penalty = 0.5;
        if (i % 5 == 2) sampling.repetition_penalty = 1.2;
        if (i % 5 == 3) sampling.min_new_tokens = 8;
        if (i % 5 == 4) sampling.stop_token_ids = {goldens[i % goldens.size()].output[3]};
        if (i % 7 == 0) sampling.logit_bias = {{goldens[i % goldens.size()].output[1], -5}};
        if (i % 6 == 0) sampling.num_top_logprobs = 2;
        requests.push_back(std::move(request));
    }
    const auto longer = read_goldens("golden_long.json")[0];
    requests.push_back(greedy(longer.prompt, static_cast<int>(longer.output.size()), true));
    return requests;
}

struct Way {
    const char* name;
    int steps = 2;  // 0: without MTP
    bool separated = false;
    const char* more = R"(, "disable_radix_cache": true)";
    const char* mode = "active";
    bool alone = false;
};

ClusterSpec spec_of(const Way& way) {
    // Of 16 at a time each has drafts; of many more it would not pay.
    std::string settings =
        fmt::format(R"({{"page_size": 16, "max_running_requests": 16{})", way.more);
    if (way.steps > 0) settings += fmt::format(R"(, "enable_mtp": true, "mtp_num_steps": {})", way.steps);
    ClusterSpec spec{.toml = way.separated ? three_nodes() : "", .settings = settings + "}", .model = {}};
    if (way.separated) spec.overrides = {{"kv-transfer", way.mode}};
    return spec;
}

// Of the requests that b has, what they give; hashes count from the end, since cached positions have none.
std::vector<size_t> differing(const std::vector<Outcome>& a, const std::vector<Outcome>& b) {
    std::vector<size_t> found;
    for (size_t i = 0; i < b.size(); ++i) {
        const size_t both = std::min(a[i].hashes.size(), b[i].hashes.size());
        const bool same = a[i].tokens == b[i].tokens && a[i].finish == b[i].finish &&
                          a[i].logprobs == b[i].logprobs && both >= a[i].tokens.size() &&
                          std::equal(a[i].hashes.end() - both, a[i].hashes.end(), b[i].hashes.end() - both);
        if (!same) found.push_back(i);
    }
    return found;
}

double accept_length(Cluster& cluster) { return cluster.metric("sglang:spec_accept_length"); }

TEST(MtpExactness, NoWayOfDraftingChangesABit) {
    const auto requests = all_requests();
    std::vector<Outcome> reference;
    {
        Cluster plain(spec_of({.name = "plain", .steps = 0}));
        reference = plain.run(requests);
        EXPECT_EQ(accept_length(plain), 1);
    }
    const Way ways[] = {
        {.name = "colocated, 1 step", .steps = 1},
        {.name = "colocated, 2 steps, alone", .alone = true},
        {.name = "colocated, 3 steps, chunk 16, cached", .steps = 3, .more = R"(, "chunked_prefill_size": 16)"},
        {.name = "colocated, 4 steps", .steps = 4},
        {.name = "separated, 2 steps", .separated = true},
        {.name = "separated, 2 steps, chunk 16", .separated = true,
         .more = R"(, "chunked_prefill_size": 16, "disable_radix_cache": true)"},
        {.name = "separated, 4 steps, cached, pulled", .steps = 4, .separated = true, .more = "",
         .mode = "passive"},
        {.name = "colocated, 2 steps, retracted",
         .more = R"(, "disable_radix_cache": true, "max_total_tokens": 256, "schedule_conservativeness": 0.02)"},
    };
    for (const Way& way : ways) {
        Cluster cluster(spec_of(way));
        const bool retracts = std::string(way.name).find("retracted") != std::string::npos;
        auto some = requests;
        if (retracts) some.pop_back();  // too long for it
        const auto outcomes = way.alone ? cluster.run_alone(some) : cluster.run(some);
        EXPECT_THAT(differing(reference, outcomes), testing::IsEmpty()) << way.name;
        if (std::string(way.name).find("cached") != std::string::npos) {
            // Prompts that are cached now: on a decode replica it computes what is left of them itself.
            const auto again = cluster.run(some);
            EXPECT_THAT(differing(reference, again), testing::IsEmpty()) << way.name;
            EXPECT_GT(again.back().cached_tokens, 400) << way.name;
        }
        cluster.expect_idle();
        EXPECT_EQ(cluster.metric("sglang:num_retracted_requests_total") > 0, retracts) << way.name;
        EXPECT_GT(accept_length(cluster), 1.2) << way.name;
    }
}

// Ranks that share a replica: the hidden rows of each are needed by all.
TEST(MtpExactness, SplitReplicasDraftToo) {
    auto all = all_requests();
    std::vector<Request> requests(all.begin(), all.begin() + 30);
    requests.push_back(all.back());
    for (const auto& [tp, cp] : {std::pair{2, 1}, std::pair{1, 2}, std::pair{2, 2}}) {
        std::vector<Outcome> reference;
        for (const int steps : {0, 3}) {
            ClusterSpec spec = spec_of({.name = "split", .steps = steps,
                                        .more = R"(, "chunked_prefill_size": 32, "disable_radix_cache": true)"});
            spec.toml = fmt::format("[cluster]\ngpus_per_node = {}\n[parallel]\nattention_tp = {}\n"
                                    "attention_cp = {}\n[ae_separation]\nenabled = false\n",
                                    tp * cp, tp, cp);
            spec.overrides = {{"tp-size", std::to_string(tp)}, {"cp-size", std::to_string(cp)}};
            Cluster cluster(spec);
            const auto outcomes = cluster.run(requests);
            if (steps == 0) reference = outcomes;
            EXPECT_THAT(differing(reference, outcomes), testing::IsEmpty()) << tp << " " << cp;
            EXPECT_EQ(accept_length(cluster) > 1.2, steps > 0) << tp << " " << cp;
            cluster.expect_idle();
        }
    }
}

TEST(MtpExactness, AWrongLayerCostsAcceptanceAndNoToken) {
    const auto all = all_requests();
    const std::vector<Request> requests(all.begin(), all.begin() + 16);
    for (const bool separated : {false, true}) {
        std::vector<Outcome> right;
        double accepted = 0;
        for (const Fault fault : {Fault::kNone, Fault::kMtpHidden}) {
            Cluster cluster(spec_of({.name = "fault", .steps = 1, .separated = separated}));
            planted_fault = static_cast<int>(fault);
            const auto outcomes = cluster.run_alone(requests);
            planted_fault = 0;
            if (fault == Fault::kNone) {
                right = outcomes;
                accepted = accept_length(cluster);
                EXPECT_GT(accepted, 1.5) << separated;
            } else {
                EXPECT_THAT(differing(right, outcomes), testing::IsEmpty()) << separated;
                EXPECT_LT(accept_length(cluster), 0.8 * accepted) << separated;
            }
        }
    }
}

// What the main layers hold is what is compared: a fault there is seen with drafts, too.
TEST(MtpExactness, AFaultOfTheMainLayersIsSeen) {
    const auto all = all_requests();
    const std::vector<Request> requests(all.begin(), all.begin() + 16);
    std::vector<Outcome> right;
    for (const Fault fault : {Fault::kNone, Fault::kExpertDropped, Fault::kRoundingMoved}) {
        Cluster cluster(spec_of({.name = "fault", .separated = true}));
        planted_fault = static_cast<int>(fault);
        const auto outcomes = cluster.run(requests);
        planted_fault = 0;
        if (fault == Fault::kNone) right = outcomes;
        else EXPECT_FALSE(differing(right, outcomes).empty()) << static_cast<int>(fault);
    }
}

class MtpTransferPressure : public testing::TestWithParam<const char*> {};

TEST_P(MtpTransferPressure, PoolsForSixBearCancelsAndRetractions) {
    const auto goldens = read_goldens("golden_greedy.json");
    std::vector<Request> kinds;
    for (const auto& golden : goldens) {
        kinds.push_back(greedy(golden.prompt, 24));
        kinds.push_back(greedy(golden.prompt, 500));
        kinds.back().sampling.stop_token_ids = {golden.output[5]};
    }
    std::vector<Outcome> answers;
    {
        Cluster roomy(spec_of({.name = "roomy", .steps = 0}));
        answers = roomy.run(kinds);
    }
    Cluster cluster(spec_of({.name = "pressed", .steps = 3, .separated = true,
                             .more = R"(, "max_total_tokens": 800, "chunked_prefill_size": 32)",
                             .mode = GetParam()}));
    press(cluster, kinds, answers);
}
INSTANTIATE_TEST_SUITE_P(Mode, MtpTransferPressure, testing::Values("active", "active_passive"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace aerie::cluster_tests
