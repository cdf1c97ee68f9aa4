// Steps of one attention rank with its experts beside it, without an exchange: where the time goes.
//
// usage: model_bench [MODEL_DIR] [--threads N] [--tile N] [--expanded-tile N]
//                    [--dtype bfloat16|float32] [--unpack-fp8] [decode] [prefill]
//        MODEL_DIR: default models/demo. Expert time shows as dispatch.
//
// A table for each case: the best step of several, and what each operation took in it. Prefill runs
// with absorbed and with expanded attention in turns.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "model/testing/replica.h"

namespace aerie::bench {
namespace {

using namespace model;

struct Settings {
    std::string folder = "models/demo";
    WeightOptions weights;
    int num_threads = 1;
    int64_t tile_rows = 256, expanded_tile_rows = 1024;
    bool decode = true, prefill = true;
};

void check(const Status& status) { CHECK(status.ok(), "{}", status.message()); }

class Case {
  public:
    Case(TestModel& model, const Settings& settings, int64_t positions, bool expand = false) {
        auto replica = TestReplica::create(model, {.max_rows = 4096,
                                                   .tile_rows = expand ? settings.expanded_tile_rows
                                                                       : settings.tile_rows,
                                                   .expand = expand,
                                                   .max_positions = positions + 4096,
                                                   .max_logits_rows = 64,
                                                   .num_threads = settings.num_threads,
                                                   .profile = &profile_});
        CHECK(replica.ok(), "{}", replica.message());
        replica_ = *std::move(replica);
    }

    TestReplica& replica() { return *replica_; }
    // Runs the step that `next` makes, again and again for about a second.
    template <typename Next>
    void run(const std::string& name, int64_t tokens, Next next) {
        check(replica_->step(next()));  // warm-up
        const TimePoint start = Clock::now();
        for (int steps = 0; steps < 200 && (steps < 3 || seconds_since(start) < 1); ++steps) {
            const auto parts = next();
            measure([&] { check(replica_->step(parts)); });
        }
        report(name, tokens);
    }

    template <typename Steps>
    void measure(Steps steps) {
        profile_ = {};
        const TimePoint begin = Clock::now();
        const std::clock_t cpu_begin = std::clock();
        steps();
        const double seconds = seconds_since(begin);
        cpu_ = std::min(cpu_, static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC);
        if (seconds >= best_) return;
        best_ = seconds;
        best_profile_ = profile_;
    }
    double best() const { return best_; }
    double cpu() const { return cpu_; }  // of all threads, the least of any step
    void report(const std::string& name, int64_t tokens) const {
        const auto n = static_cast<double>(tokens);
        std::printf("\n%s: %.3f ms, %.0f tokens/s, %.0f tokens in a second of CPU time\n",
                    name.c_str(), best_ * 1e3, n / best_, n / cpu_);
        for (int op = 0; op < static_cast<int>(StepOp::kCount); ++op) {
            const double seconds = best_profile_.seconds[op];
            if (seconds == 0) continue;
            std::printf("  %-16s %9.1f us %5.1f %%\n", name_of(static_cast<StepOp>(op)), seconds * 1e6,
                        seconds / best_ * 100);
        }
    }

  private:
    StepProfile profile_, best_profile_;
    double best_ = 1e9, cpu_ = 1e9;  // seconds
    std::unique_ptr<TestReplica> replica_;
};

std::vector<int32_t> some_tokens(int64_t n, int32_t vocab) {
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
        tokens[static_cast<size_t>(i)] = static_cast<int32_t>(i * 7919 % vocab);
    return tokens;
}

void bench_decode(TestModel& model, const Settings& settings) {
    for (int64_t context : {128, 4096}) {
        for (int batch : {1, 4, 16}) {
            constexpr int64_t kSteps = 256;
            Case c(model, settings, batch * (context + kSteps));
            // KV is left zero: attention takes as long over any values.
            const auto tokens = some_tokens(context + kSteps, model.config.vocab_size);
            std::vector<StepPart> parts;
            for (int i = 0; i < batch; ++i) {
                const int sequence = c.replica().add_sequence(tokens);
                c.replica().skip(sequence, context);
                parts.push_back({sequence, 1});
            }
            c.run(fmt::format("decode, batch {}, context {}", batch, context), batch,
                  [&] { return parts; });
        }
    }
}

void bench_prefill(TestModel& model, const Settings& settings) {
    constexpr int64_t kChunk = 4096;
    for (int64_t length : {512, 4096, 16000}) {  // the table of the rope ends at 16384
        Case absorbed(model, settings, length), expanded(model, settings, length, true);
        const auto tokens = some_tokens(length, model.config.vocab_size);
        absorbed.replica().add_sequence(tokens);
        expanded.replica().add_sequence(tokens);
        const TimePoint start = Clock::now();
        for (int turns = 0; turns < 50 && (turns < 2 || seconds_since(start) < 4); ++turns) {
            for (Case* c : {&absorbed, &expanded}) {
                c->replica().rewind(0);
                std::vector<float> logits;
                c->measure([&] { check(c->replica().prefill(0, kChunk, false, logits)); });
            }
        }
        absorbed.report(fmt::format("prefill of {}, absorbed", length), length);
        expanded.report(fmt::format("prefill of {}, expanded", length), length);
        std::printf("  %.2f times as fast, %.2f by CPU time\n", absorbed.best() / expanded.best(),
                    absorbed.cpu() / expanded.cpu());
        std::fflush(stdout);
    }
}

Settings parse(int argc, char** argv) {
    Settings settings;
    bool chosen = false;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
        if (word == "--threads") {
            settings.num_threads = std::max(1, std::atoi(value().c_str()));
        } else if (word == "--tile") {
            settings.tile_rows = std::max(1, std::atoi(value().c_str()));
        } else if (word == "--expanded-tile") {
            settings.expanded_tile_rows = std::max(1, std::atoi(value().c_str()));
        } else if (word == "--dtype") {
            settings.weights.compute = value() == "float32" ? DType::kF32 : DType::kBF16;
        } else if (word == "--unpack-fp8") {
            settings.weights.keep_fp8 = false;
        } else if (word == "decode" || word == "prefill") {
            if (!chosen) settings.decode = settings.prefill = false;
            chosen = true;
            (word == "decode" ? settings.decode : settings.prefill) = true;
        } else {
            settings.folder = word;
        }
    }
    return settings;
}

}  // namespace
}  // namespace aerie::bench

int main(int argc, char** argv) {
    using namespace aerie;
    const bench::Settings settings = bench::parse(argc, argv);
    set_log_level(LogLevel::kWarning);
    auto model = model::TestModel::load(settings.folder, settings.weights);
    if (!model) {
        std::fprintf(stderr, "%s\n", model.message().c_str());
        return 2;
    }
    if (settings.decode) bench::bench_decode(**model, settings);
    if (settings.prefill) bench::bench_prefill(**model, settings);
    return 0;
}
