// `aerie bench --compare`: two servers under the same load, in turn.
#pragma once

#include <string>
#include <vector>

#include "app/bench_options.h"
#include "app/bench_stats.h"

namespace aerie::bench {

struct Side {
    std::string name;                    // "A", "B"
    std::vector<std::string> arguments;  // of aerie serve, without --host and --port
    std::vector<Summary> rounds;
    std::vector<double> start_s;         // from its start to /health being 200
};

// A and B as the options give them; without --versus: separation on and off.
std::vector<Side> make_sides(const Options& options);

// The median of A and of B, and of the rounds' ratios A / B with their least and greatest.
std::string compare_table(const std::vector<Side>& sides, const Options& options);
Json compare_json(const std::vector<Side>& sides, const Options& options);

int run_compare(const Options& options);  // the exit status

}  // namespace aerie::bench
