// aerie bench: load on an OpenAI-protocol server, and what it came to.
//
// What separation brings or costs, on against off, with one pair of files:
//   aerie bench --compare '--config configs/demo/settings.json --ae-config configs/demo/config.toml'
// Any two configurations:
//   aerie bench --compare 'ARGS A' --versus 'ARGS B'
// A server that runs already (any that speaks /v1/completions with token ids as the prompt):
//   aerie bench --url http://127.0.0.1:30000 --concurrency 16 --prompt-len 4096
#include <cstdio>

#include "app/bench_compare.h"
#include "app/bench_options.h"
#include "app/bench_stats.h"
#include "app/subcommands.h"

namespace aerie {
namespace {

int run_one(const bench::Options& options) {
    auto result = bench::run_load(*bench::parse_url(options.url), options.load);
    if (!result) {
        std::fprintf(stderr, "error: %s\n", result.message().c_str());
        return 1;
    }
    const bench::Summary summary = bench::summarize(*result, options.load);
    if (options.json) {
        const Json json = Json::object()
                              .set("url", options.url)
                              .set("load", bench::to_json(options.load))
                              .set("result", bench::to_json(summary));
        std::fprintf(stdout, "%s\n", json.dump(2).c_str());
    } else {
        std::fputs(bench::table(summary, options.load).c_str(), stdout);
    }
    std::fflush(stdout);
    std::fputs(bench::failure_lines(summary).c_str(), stderr);
    return summary.num_failed > 0 ? 1 : 0;
}

}  // namespace

int run_bench(const std::vector<std::string>& arguments) {
    const bench::ParsedOptions parsed = bench::parse_options(arguments);
    if (parsed.help) {
        std::fputs(bench::help_text().c_str(), stdout);
        return 0;
    }
    for (const std::string& error : parsed.errors) {
        std::fprintf(stderr, "error: %s\n", error.c_str());
    }
    if (!parsed.errors.empty()) return 2;
    const bench::Options& options = parsed.options;
    return options.compare.empty() ? run_one(options) : bench::run_compare(options);
}

}  // namespace aerie
