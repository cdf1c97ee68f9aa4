// How fast the prefix cache finds, takes and gives up pages, on one thread, in CPU time: matching
// where the tree holds nothing else and where it holds a million tokens, inserting, evicting. With a
// folder: how long a page takes to its lower tiers and back, a file in that folder last.
// usage: cache_bench [FOLDER]
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <random>
#include <vector>

#include "cache/prefix_cache.h"
#include "file_tier.h"

namespace aerie::cache {
namespace {

constexpr int kCachedTokens = 1 << 20;
constexpr int kPromptTokens = 4096;
constexpr int kNumPrompts = kCachedTokens / kPromptTokens;
constexpr double kSecondsPerLine = 1.0;

double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Prompts that share a first part of a quarter with every fourth other one.
std::vector<std::vector<int32_t>> make_prompts() {
    std::mt19937 random(1);
    std::vector<std::vector<int32_t>> prompts(kNumPrompts);
    for (int i = 0; i < kNumPrompts; ++i) {
        if (i >= 4) prompts[i].assign(prompts[i % 4].begin(), prompts[i % 4].begin() + 1024);
        while (prompts[i].size() < kPromptTokens)
            prompts[i].push_back(static_cast<int32_t>(random() % 129280));
    }
    return prompts;
}

void compute(KvBlocks& kv, PrefixCache& cache, const std::vector<int32_t>& prompt) {
    std::vector<int32_t> blocks;
    cache.acquire("", prompt, blocks);
    kv.extend(blocks, kv.blocks_for(static_cast<int64_t>(prompt.size())));
    cache.insert("", prompt, blocks);
    kv.release(blocks);
}

// Tokens a second of `call`, which returns how many it has dealt with.
template <typename Call>
double tokens_per_second(Call call) {
    int64_t num_tokens = 0;
    const double start = cpu_seconds();
    double seconds = 0;
    do {
        for (int i = 0; i < 16; ++i) num_tokens += call();
        seconds = cpu_seconds() - start;
    } while (seconds < kSecondsPerLine);
    return static_cast<double>(num_tokens) / seconds;
}

void measure(int page_size, const std::vector<std::vector<int32_t>>& prompts) {
    KvBlocks kv(
        {.num_blocks = (kCachedTokens + kPromptTokens) / page_size, .page_size = page_size});
    PrefixCache cache(kv);
    std::mt19937 random(2);
    std::vector<int32_t> blocks;
    const auto line = [&](const char* what, double rate) {
        fmt::print("{:>5} {:44} {:>9.1f} {:>12.3f}\n", page_size, what, rate / 1e6,
                   rate / page_size / 1e6);
    };
    const auto use = [&](const std::vector<int32_t>& prompt) {
        const int num_tokens = cache.acquire("", prompt, blocks);
        kv.release(blocks);
        return num_tokens;
    };

    compute(kv, cache, prompts[0]);
    const double alone = tokens_per_second([&] { return cache.match("", prompts[0]).num_tokens; });
    line("match, nothing else cached", alone);
    for (const auto& prompt : prompts) compute(kv, cache, prompt);
    const double same = tokens_per_second([&] { return cache.match("", prompts[0]).num_tokens; });
    line("match, 1 M tokens cached, the same prompt", same);
    line("match, 1 M tokens cached, any prompt", tokens_per_second([&] {
             return cache.match("", prompts[random() % kNumPrompts]).num_tokens;
         }));
    line("acquire and release, 1 M tokens cached",
         tokens_per_second([&] { return use(prompts[random() % kNumPrompts]); }));

    double insert_seconds = 0, evict_seconds = 0;
    int64_t inserted = 0, evicted = 0;
    while (insert_seconds + evict_seconds < kSecondsPerLine) {
        cache.flush();
        for (const auto& prompt : prompts) {
            std::vector<int32_t> list;
            kv.extend(list, kPromptTokens / page_size);
            const double start = cpu_seconds();
            inserted += kPromptTokens - cache.insert("", prompt, list);
            kv.release(list);
            insert_seconds += cpu_seconds() - start;
        }
        const double start = cpu_seconds();
        const uint64_t before = cache.evicted_tokens();
        kv.extend(blocks, kv.pool(0).num_blocks());
        evict_seconds += cpu_seconds() - start;
        evicted += static_cast<int64_t>(cache.evicted_tokens() - before);
        kv.release(blocks);
    }
    line("insert and release", static_cast<double>(inserted) / insert_seconds);
    line("evict and allocate", static_cast<double>(evicted) / evict_seconds);
}

}  // namespace
}  // namespace aerie::cache

int main(int argc, char** argv) {
    if (argc == 2) return aerie::cache::measure_file_tier(argv[1]), 0;
    const auto prompts = aerie::cache::make_prompts();
    fmt::print("{:>5} {:44} {:>9} {:>12}\n", "page", "", "M tokens/s", "M pages/s");
    for (const int page_size : {1, 16, 64}) aerie::cache::measure(page_size, prompts);
}
