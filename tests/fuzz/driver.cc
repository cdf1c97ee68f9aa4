// What runs a fuzz target where libFuzzer is not linked: every file of a corpus, then mutations of
// them, the same ones for the same seed. No feedback from the code that runs: it is a test that
// every build can afford, the long search is libFuzzer's (the preset `fuzz`).
//
// usage: fuzz_<target> [--seconds S] [--runs N] [--seed N] [--max-len BYTES] [--limit S]
//                      [--dict FILE] CORPUS...
//   CORPUS: files, and folders of files. With --runs 0 nothing but these is run.
//   --seconds: no more mutations after these, and without --runs as many as they allow.
//   --limit: seconds that one input may take.
// A crash, a run beyond the limit and a leak (where the sanitizer that sees it is linked) end the
// process with an error that holds the input, as what printf(1) makes the bytes of.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fuzz.h"
#include "mutator.h"

// There where a sanitizer is linked.
extern "C" {
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());
__attribute__((weak)) int __lsan_do_recoverable_leak_check();
// That of undefined behaviour knows of no callback, but can be made to abort.
const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }
}

namespace aerie::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
    double seconds = 1e9;
    std::optional<long> runs;  // none: 1000, or what `seconds` allow
    uint64_t seed = 1;
    size_t max_len = 4096;  // bytes of a mutation
    int limit_s = 20;
    std::string dictionary;
    std::vector<std::string> corpus;
};

constexpr size_t kLeakCheckEvery = 4096;  // runs: a check takes a while

// What runs now. Read by signal handlers.
const char* current_data = nullptr;
size_t current_size = 0;

void write_all(const char* bytes, size_t size) {
    while (size > 0) {
        const ssize_t written = write(STDERR_FILENO, bytes, size);
        if (written <= 0) return;
        bytes += written;
        size -= static_cast<size_t>(written);
    }
}

// Calls nothing that a signal handler must not.
void print_current() {
    const char* const data = std::exchange(current_data, nullptr);
    if (data == nullptr) return;
    const auto say = [](const char* text) { write_all(text, std::strlen(text)); };
    say("\nthe input: printf '");
    for (size_t i = 0; i < current_size; ++i) {
        const auto byte = static_cast<unsigned char>(data[i]);
        const bool plain = byte >= ' ' && byte < 127 && std::strchr("'\\%", byte) == nullptr;
        const char hex[] = {'\\', 'x', "0123456789abcdef"[byte >> 4],
                            "0123456789abcdef"[byte & 15]};
        plain ? write_all(data + i, 1) : write_all(hex, sizeof hex);
    }
    say("'\n");
}

[[noreturn]] void on_signal(int number) {
    const char* const what =
        number == SIGALRM ? "\nan input takes longer than --limit\n" : "\na crash\n";
    write_all(what, std::strlen(what));
    print_current();
    _exit(number == SIGALRM ? 70 : 77);
}

void watch() {
    static char stack[64 << 10];  // a deep recursion leaves none
    const stack_t own{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
    sigaltstack(&own, nullptr);
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGALRM, &action, nullptr);
    sigaction(SIGABRT, &action, nullptr);
    if (__sanitizer_set_death_callback != nullptr) {
        __sanitizer_set_death_callback(print_current);  // behind its own report
        return;
    }
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(number, &action, nullptr);
}

void run(const std::string& input, int limit_s) {
    // A copy of exactly its size: what is read behind it is seen.
    const std::unique_ptr<char[]> copy(new char[input.size()]);
    std::copy(input.begin(), input.end(), copy.get());
    current_data = copy.get();
    current_size = input.size();
    alarm(static_cast<unsigned>(limit_s));
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(copy.get()), input.size());
    alarm(0);
    current_data = nullptr;
}

bool leaks() {
    return __lsan_do_recoverable_leak_check != nullptr && __lsan_do_recoverable_leak_check() != 0;
}

// Runs the inputs in a process of their own, which has not leaked yet. True where it fails; it has
// told the input then.
bool fails_alone(std::span<const std::string> inputs, const Options& options) {
    const Folder folder;
    for (size_t i = 0; i < inputs.size(); ++i)
        folder.write(fmt::format("{:06}", i).c_str(), inputs[i]);
    const std::string limit = std::to_string(options.limit_s);
    const pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "fuzz", "--runs", "0", "--limit", limit.c_str(),
              folder.path().c_str(), nullptr);
        _exit(0);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && status != 0;
}

// A leak is seen long after its run: each half of the runs since the last check is made again, and
// of that which leaks, by its process, each half, down to one.
void check_leaks(std::vector<std::string>& since_last, const Options& options) {
    if (!leaks()) return since_last.clear();
    const std::span<const std::string> inputs = since_last;
    const size_t half = inputs.size() / 2;
    if (inputs.size() == 1) {
        current_data = inputs[0].data();
        current_size = inputs[0].size();
        print_current();
    } else if (!fails_alone(inputs.first(half), options) &&
               !fails_alone(inputs.subspan(half), options)) {
        std::fprintf(stderr, "\na leak that only several inputs together make\n");
    }
    _exit(78);
}

std::vector<std::string> read_corpus(const std::vector<std::string>& paths) {
    std::vector<std::filesystem::path> files;
    for (const std::string& path : paths) {
        if (!std::filesystem::is_directory(path)) {
            files.emplace_back(path);
            continue;
        }
        for (const auto& entry : std::filesystem::directory_iterator(path))
            if (entry.is_regular_file()) files.push_back(entry.path());
    }
    require(!files.empty(), "the corpus holds a file");
    std::sort(files.begin(), files.end());
    std::vector<std::string> corpus;
    for (const auto& path : files) {
        std::ifstream file(path, std::ios::binary);
        require(file.good(), "the corpus can be read: " + path.string());
        corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return corpus;
}

Options parse(int argc, char** argv) {
    Options options;
    bool has_seconds = false;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (!name.starts_with("--")) {
            options.corpus.push_back(name);
            continue;
        }
        const char* const value = ++i < argc ? argv[i] : "";
        if (name == "--seconds") {
            options.seconds = std::atof(value);
            has_seconds = true;
        } else if (name == "--runs") {
            options.runs = std::atol(value);
        } else if (name == "--seed") {
            options.seed = std::strtoull(value, nullptr, 10);
        } else if (name == "--max-len") {
            options.max_len = std::strtoul(value, nullptr, 10);
        } else if (name == "--limit") {
            options.limit_s = std::atoi(value);
        } else if (name == "--dict") {
            options.dictionary = value;
        } else {
            std::fprintf(stderr, "unknown option %s\n", name.c_str());
            std::exit(2);
        }
    }
    if (!options.runs) options.runs = has_seconds ? LONG_MAX : 1000;
    return options;
}

int fuzz(const Options& options) {
    const auto begin = Clock::now();
    const auto seconds = [&] {
        return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    watch();
    const std::vector<std::string> corpus = read_corpus(options.corpus);
    std::vector<std::string> since_last;
    const auto run_and_keep = [&](std::string input) {
        run(input, options.limit_s);
        since_last.push_back(std::move(input));
        if (since_last.size() >= kLeakCheckEvery) check_leaks(since_last, options);
    };
    for (const std::string& input : corpus) run_and_keep(input);
    Mutator mutator(corpus, read_dictionary(options.dictionary), options.max_len, options.seed);
    long count = 0;
    for (; count < *options.runs && seconds() < options.seconds; ++count)
        run_and_keep(mutator.next());
    check_leaks(since_last, options);
    require(count > 0 || *options.runs == 0, "--seconds are enough for more than the corpus");
    std::printf("%zu inputs of the corpus and %ld mutations in %.1f s\n", corpus.size(), count,
                seconds());
    return 0;
}

}  // namespace
}  // namespace aerie::fuzz

int main(int argc, char** argv) { return aerie::fuzz::fuzz(aerie::fuzz::parse(argc, argv)); }
