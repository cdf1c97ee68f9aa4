#include "app/bench_compare.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "app/bench_server.h"

namespace aerie::bench {
namespace {

constexpr double kStopLimitSeconds = 60;

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
}

// A server of this side for one round: start, load, stop.
Status measure(Side& side, const Options& options, int round) {
    auto port = free_port();
    if (!port) return port.error();
    std::vector<std::string> argv = {"/proc/self/exe", "serve"};
    argv.insert(argv.end(), side.arguments.begin(), side.arguments.end());
    // The last one of a repeated option counts.
    for (const char* word : {"--host", "127.0.0.1", "--port"}) argv.emplace_back(word);
    argv.push_back(std::to_string(*port));
    auto server = ServerProcess::start(argv);
    if (!server) return server.error();
    const Endpoint endpoint{.host = "127.0.0.1", .port = *port};
    RETURN_IF_ERROR((*server)->wait_healthy(endpoint, options.start_timeout_s));
    LoadShape shape = options.load;
    shape.seed += round;  // the same for both sides
    auto result = run_load(endpoint, shape);
    if (!result) return error("{}: {}", side.name, result.message());
    side.start_s.push_back((*server)->seconds_to_health());
    side.rounds.push_back(summarize(*result, shape));
    return (*server)->stop(kStopLimitSeconds);
}

struct Row {
    std::string key, label;
    std::vector<double> a, b;  // [rounds]
};

std::vector<Row> rows(const std::vector<Side>& sides) {
    std::vector<Row> rows;
    for (const Metric& metric : kMetrics) {
        Row& row = rows.emplace_back(Row{metric.key, metric.label, {}, {}});
        for (const Summary& summary : sides[0].rounds) row.a.push_back(summary.*metric.value);
        for (const Summary& summary : sides[1].rounds) row.b.push_back(summary.*metric.value);
    }
    rows.push_back({"start_s", "from start to healthy, s", sides[0].start_s, sides[1].start_s});
    return rows;
}

double median(const std::vector<double>& values) { return percentile(values, 50); }

std::vector<double> ratios(const Row& row) {
    std::vector<double> ratios;
    for (size_t i = 0; i < std::min(row.a.size(), row.b.size()); ++i) {
        ratios.push_back(row.b[i] != 0 ? row.a[i] / row.b[i]
                                       : std::numeric_limits<double>::quiet_NaN());
    }
    return ratios;
}

bool any_failed(const std::vector<Side>& sides) {
    for (const Side& side : sides) {
        for (const Summary& summary : side.rounds) {
            if (summary.num_failed > 0) return true;
        }
    }
    return false;
}

}  // namespace

std::vector<Side> make_sides(const Options& options) {
    const std::vector<std::string> a = *split_words(options.compare);
    std::vector<Side> sides = {{"A", a, {}, {}}, {"B", *split_words(options.versus), {}, {}}};
    if (options.versus.empty()) {
        sides[1].arguments = a;
        for (Side& side : sides) {
            side.arguments.emplace_back("--enable-ae-separation");
            side.arguments.emplace_back(side.name == "A" ? "true" : "false");
        }
    }
    return sides;
}

std::string compare_table(const std::vector<Side>& sides, const Options& options) {
    std::string text = fmt::format("{}, {} rounds\n", describe(options.load), options.rounds);
    for (const Side& side : sides) {
        text += fmt::format("{} = aerie serve {}\n", side.name, joined(side.arguments));
    }
    text += fmt::format("\n{:<28} {:>10} {:>10}   {}\n", "", "A", "B", "A / B (min ... max)");
    for (const Row& row : rows(sides)) {
        const std::vector<double> all = ratios(row);
        text += fmt::format("{:<28} {:>10} {:>10}", row.label, figure(median(row.a)),
                            figure(median(row.b)));
        text += fmt::format("   {} ({} ... {})\n", figure(median(all)), figure(percentile(all, 0)),
                            figure(percentile(all, 100)));
    }
    return text;
}

Json compare_json(const std::vector<Side>& sides, const Options& options) {
    Json json = Json::object().set("load", to_json(options.load));
    for (const Side& side : sides) {
        Json rounds = Json::array();
        for (size_t i = 0; i < side.rounds.size(); ++i) {
            Json summary = to_json(side.rounds[i]);
            rounds.push_back(summary.set("start_s", side.start_s[i]));
        }
        json.set(side.name, Json::object()
                                .set("arguments", joined(side.arguments))
                                .set("rounds", std::move(rounds)));
    }
    Json ratio_members = Json::object();
    for (const Row& row : rows(sides)) {
        const std::vector<double> all = ratios(row);
        ratio_members.set(row.key, Json::object()
                                       .set("median", median(all))
                                       .set("min", percentile(all, 0))
                                       .set("max", percentile(all, 100)));
    }
    return json.set("ratio_a_to_b", std::move(ratio_members));
}

int run_compare(const Options& options) {
    std::vector<Side> sides = make_sides(options);
    for (int round = 0; round < options.rounds; ++round) {
        // Who is first alternates, so that neither side always finds the machine warmer.
        for (const size_t which : {round % 2 == 0 ? 0u : 1u, round % 2 == 0 ? 1u : 0u}) {
            Side& side = sides[which];
            if (Status status = measure(side, options, round); !status) {
                std::fprintf(stderr, "error: %s\n", status.message().c_str());
                return 1;
            }
            const Summary& summary = side.rounds.back();
            std::fprintf(stderr, "round %d of %d, %s: %s output tokens/s, %d failed\n", round + 1,
                         options.rounds, side.name.c_str(),
                         figure(summary.output_tokens_per_s).c_str(), summary.num_failed);
            std::fputs(failure_lines(summary).c_str(), stderr);
        }
    }
    const std::string text = options.json ? compare_json(sides, options).dump(2) + '\n'
                                          : compare_table(sides, options);
    std::fputs(text.c_str(), stdout);
    return any_failed(sides) ? 1 : 0;
}

}  // namespace aerie::bench
