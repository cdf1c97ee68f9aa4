// How fast the tokenizer encodes, on one thread: MB/s on ordinary mixed text, and the time for runs
// of one letter, which must grow with the length and not with its square. Times are the thread's CPU
// time, so that other work on the machine counts as little as possible.
// usage: tokenizer_bench [model_dir ...]     (from the repository's root)
#include <fmt/core.h>
#include <time.h>

#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace aerie {
namespace {

constexpr double kSecondsPerLine = 1.0;
constexpr double kTargetMbPerSecond = 10.0;

// Prose, code, Chinese and numbers by turns, with numbers that differ from line to line so that
// not every word was seen before.
std::string mixed_text(size_t num_bytes) {
    static const char* const kLines[] = {
        "The committee met on day {0} and approved {1} of the proposals, which hadn't been expected.\n",
        "def update_{0}(state, delta_{1}=0.5):\n    return {{k: v * delta_{1} for k, v in state.items()}}\n",
        "第{0}届会议在深圳举行，共有{1}名代表参加了讨论，并通过了新的决议。\n",
        "In chapter {0}, the author explains why caches of {1} KiB behave differently from larger ones.\n",
        "    if (values[{0}] != nullptr && limit_{1} > 0) {{ total += values[{0}]->size(); }}\n",
        "Das Ergebnis von Versuch {0} war {1},5 Prozent höher als im Vorjahr; niemand wusste, warum.\n",
    };
    std::string text;
    for (unsigned i = 0; text.size() < num_bytes; ++i) {
        const unsigned a = i * 2654435761u >> 20, b = i * 40503u >> 3;
        text += fmt::format(fmt::runtime(kLines[i % std::size(kLines)]), a, b);
    }
    return text;
}

double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// The best of as many runs as fit in the time.
double best_seconds(const Tokenizer& tokenizer, const std::string& text, size_t& num_tokens) {
    double best = 1e9;
    const double begin = cpu_seconds();
    do {
        const double start = cpu_seconds();
        num_tokens = tokenizer.encode(text).size();
        best = std::min(best, cpu_seconds() - start);
    } while (cpu_seconds() - begin < kSecondsPerLine);
    return best;
}

void measure(const std::string& model_dir) {
    const double start = cpu_seconds();
    auto loaded = Tokenizer::load(model_dir);
    if (!loaded) {
        fmt::print("{}\n", loaded.message());
        return;
    }
    const Tokenizer& tokenizer = **loaded;
    fmt::print("\n{}: {} tokens, loaded in {:.0f} ms\n", model_dir, tokenizer.vocab_size(),
               (cpu_seconds() - start) * 1e3);
    fmt::print("  {:28} {:>10} {:>10} {:>9} {:>9}\n", "text", "bytes", "tokens", "ms", "MB/s");
    const auto line = [&](const std::string& name, const std::string& text, const char* note) {
        size_t num_tokens = 0;
        const double seconds = best_seconds(tokenizer, text, num_tokens);
        fmt::print("  {:28} {:>10} {:>10} {:>9.2f} {:>9.1f} {}\n", name, text.size(), num_tokens,
                   seconds * 1e3, static_cast<double>(text.size()) / seconds / 1e6, note);
    };
    line("mixed, 4 MB", mixed_text(4'000'000),
         fmt::format("(target {} MB/s)", kTargetMbPerSecond).c_str());
    line("mixed, 2 KB", mixed_text(2'000), "");
    for (size_t length : {10'000, 100'000, 1'000'000}) {
        line(fmt::format("a run of 'a', {}", length), std::string(length, 'a'), "");
    }
    line("a run of ' ', 1000000", std::string(1'000'000, ' '), "");
    line("a run of '1', 1000000", std::string(1'000'000, '1'), "");
}

}  // namespace
}  // namespace aerie

int main(int argc, char** argv) {
    std::vector<std::string> dirs(argv + 1, argv + argc);
    if (dirs.empty()) dirs = {"models/demo", "tests/text/deepseek-v3-tokenizer"};
    for (const std::string& dir : dirs) aerie::measure(dir);
}
