#include "file_tier.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "tensor/kv_file.h"

namespace aerie::cache {
namespace {

constexpr int kPageSize = 64;
constexpr int kWidth = 576;
constexpr int kNumSlots = 128;
constexpr int kNumRounds = 5;

template <typename Call>
double median_ms(Call call) {
    std::vector<double> times;
    for (int i = 0; i < kNumRounds * kNumSlots; ++i) {
        const TimePoint start = Clock::now();
        call(i % kNumSlots);
        times.push_back(seconds_since(start) * 1e3);
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
}

void measure(const char* folder, const char* model, int num_layers) {
    const KvPoolShape shape{.num_layers = num_layers,
                            .num_blocks = kNumSlots,
                            .page_size = kPageSize,
                            .width = kWidth,
                            .dtype = DType::kBF16};
    KvPool pool(shape), host(shape);
    std::memset(pool.layer(0), 1, pool.num_bytes());
    std::memset(host.layer(0), 2, host.num_bytes());
    auto file = KvFile::create(folder, shape);
    if (!file) return (void)fmt::print("{}\n", file.message());
    const double copied = median_ms([&](int block) {
        for (int layer = 0; layer < num_layers; ++layer)
            std::memcpy(host.block(layer, block), pool.block(layer, block), pool.block_bytes());
    });
    const double written = median_ms([&](int block) { (*file)->write(block, host, block); });
    bool all = true;
    const double read = median_ms([&](int block) { all &= (*file)->read(block, pool, block); });
    const double mb = static_cast<double>(pool.num_bytes()) / kNumSlots * 1e-6;
    fmt::print("{:12} {:5.2f} MB a page: to host {:6.3f} ms, to file {:6.3f} ms, from file {:6.3f} "
               "ms{}\n",
               model, mb, copied, written, read, all ? "" : ", and pages were lost");
}

}  // namespace

void measure_file_tier(const char* folder) {
    measure(folder, "DeepSeek-V3", 61);
    measure(folder, "demo", 6);
}

}  // namespace aerie::cache
