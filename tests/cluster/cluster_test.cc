// Attention and expert hosts together, in one process: the goldens, and that no way of running a
// request changes a bit of its logits.
#include <gtest/gtest.h>

#include "base/fault.h"
#include "golden.h"
#include "in_process_cluster.h"

namespace aerie::cluster_tests {
namespace {

std::vector<Request> golden_requests(bool hash) {
    std::vector<Request> requests;
    for (const auto& golden : read_goldens("golden_greedy.json")) {
        requests.push_back(greedy(golden.prompt, static_cast<int>(golden.output.size()), hash));
    }
    return requests;
}

TEST(Cluster, Float32GivesEveryGoldenTokenSeparatedAndNot) {
    const auto goldens = read_goldens("golden_greedy.json");
    for (const bool separated : {true, false}) {
        Cluster cluster({.toml = separated ? three_nodes("", "float32") : "",
                         .overrides = separated ? std::vector<std::pair<std::string, std::string>>{}
                                                : std::vector<std::pair<std::string, std::string>>{
                                                      {"dtype", "float32"}}});
        const auto outcomes = cluster.run(golden_requests(false));
        for (size_t i = 0; i < goldens.size(); ++i) {
            EXPECT_EQ(outcomes[i].tokens, goldens[i].output) << (separated ? "separated " : "colocated ") << i
                                                             << " " << outcomes[i].error;
        }
        cluster.expect_idle();
        EXPECT_EQ(cluster.metric("sglang:ae_sep_kv_transfer_bytes") > 0, separated);
    }
}

TEST(Cluster, SeparatedEqualsColocatedBitForBit) {
    std::vector<Outcome> colocated, separated;
    {
        Cluster cluster({.settings = R"({"disable_radix_cache": true})"});
        colocated = cluster.run(golden_requests(true));
    }
    {
        Cluster cluster({.toml = three_nodes(), .settings = R"({"disable_radix_cache": true})"});
        separated = cluster.run(golden_requests(true));
    }
    ASSERT_EQ(colocated.size(), separated.size());
    for (size_t i = 0; i < colocated.size(); ++i) EXPECT_EQ(colocated[i], separated[i]) << i;
}

}  // namespace
}  // namespace aerie::cluster_tests
