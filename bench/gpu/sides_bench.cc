// The two sides of a MoE layer of DeepSeek-V3 on one card, in decode steps that are graphs, beside
// what must be: of the expert side its two grouped products, of the attention side, which is all
// else, its products (gate and shared expert among them) and MLA, each kernel timed by itself in
// the same step run kernel by kernel.
//
// usage: sides_bench [--heads N] [--kernels]
//        --kernels also lists what a layer launches, with the time of each
//
// Layer: by the card's clock between the time stamps of the step's graph (model/card_steps.cc). The
// expert side is its kernels' own times: placing, quantising, the products, SiLU, adding up with
// the norm behind. The attention side is the rest of the layer. "Not in kernels": how much longer
// the graph's layers take than all their kernels one by one; less than 0 where they overlap.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "bench/gpu/kernel_times.h"
#include "bench/gpu/layer_model.h"
#include "config/card_memory.h"
#include "config/memory_plan.h"
#include "kernels/cuda/early_launch.h"
#include "model/step_numbers.h"

namespace aerie::bench {
namespace {

constexpr int kLayers = 4, kFirstMoe = 1;
constexpr int64_t kMaxRows = 2048;

// Sums of MoE layers over steps.
struct Sides : LayerObserver {
    double attention = 0, experts = 0;
    int num_layers = 0;

    void layer_done(int, int) override {}
    void attention_time(int layer, int, double seconds) override {
        if (layer >= kFirstMoe) attention += seconds * 1e6;
    }
    void experts_time(int, double seconds) override {
        experts += seconds * 1e6;
        ++num_layers;
    }
};

// Kernels of one step, from the last layers' first stamp on: those of each side of a MoE layer.
struct LayerKernels {
    std::vector<KernelTime> attention, experts;
};

bool is_product(const KernelTime& k) {
    return k.name.starts_with("sm90_fp8_gemm") || k.name == "gemm_kernel";
}
bool is_mla(const KernelTime& k) { return k.name.find("MLA") != k.name.npos; }

// Stamps stand before and behind the attention of each layer, and behind the last layer.
std::vector<LayerKernels> layers_of(const std::vector<KernelTime>& kernels) {
    std::vector<std::vector<KernelTime>> parts(1);
    for (const KernelTime& kernel : kernels) {
        if (kernel.name == "write_time")
            parts.emplace_back();
        else
            parts.back().push_back(kernel);
    }
    constexpr size_t kParts = 2 * kLayers + 2;  // with what is before and behind
    std::vector<LayerKernels> layers;
    for (size_t step = 0; step + kParts <= parts.size(); step += kParts - 1)
        for (size_t layer = kFirstMoe; layer < kLayers; ++layer)
            layers.push_back({parts[step + 1 + 2 * layer], parts[step + 2 + 2 * layer]});
    return layers;
}

template <typename Counts>
double sum_us(const std::vector<KernelTime>& kernels, const Counts& counts) {
    double sum = 0;
    for (const KernelTime& k : kernels) sum += counts(k) ? k.us() : 0;
    return sum;
}
bool any(const KernelTime&) { return true; }

// Of the kernels behind attention those of the expert side, and what of it must be.
struct ExpertSide {
    double us = 0, grouped_us = 0;
};
ExpertSide expert_side_of(const std::vector<KernelTime>& kernels) {
    ExpertSide side;
    int products = -1;  // behind where rows are placed
    for (const KernelTime& k : kernels) {
        if (k.name == "place" || k.name == "place_and_quantise") products = 0;
        if ((products >= 0 && products < 2) || k.name == "combine_and_norm_kernel")
            side.us += k.us();
        if (products >= 0 && products < 2 && is_product(k)) {
            side.grouped_us += k.us();
            ++products;
        }
    }
    return side;
}

void list_kernels(const char* side, const std::vector<LayerKernels>& layers,
                  const std::vector<KernelTime> LayerKernels::*of) {
    std::printf("  %s:", side);
    for (size_t i = 0; i < (layers[0].*of).size(); ++i) {
        double us = 0;
        for (const LayerKernels& layer : layers)
            us += i < (layer.*of).size() ? (layer.*of)[i].us() : 0;
        std::printf(" %s %.1f", (layers[0].*of)[i].name.c_str(),
                    us / static_cast<double>(layers.size()));
    }
    std::printf("\n");
}

// Kernel by kernel, each after the other has ended.
std::vector<LayerKernels> kernel_times(Bench& eager, const Case& c) {
    kernels::cuda::early_launches = false;
    eager.step_us(c);
    KernelTimes::start();
    eager.step_us(c);
    auto layers = layers_of(KernelTimes::stop());
    kernels::cuda::early_launches = true;
    CHECK(!layers.empty(), "no layers were found among the kernels");
    return layers;
}

// The layer in graphs and its kernels one by one take turns, as the clocks change; the median.
double layer_us(Bench& graphs, const Case& c) {
    Sides sides;
    graphs.replica().set_observer(0, &sides);
    graphs.step_us(c);
    graphs.replica().set_observer(0, nullptr);
    return (sides.attention + sides.experts) / sides.num_layers;
}

void run_case(Bench& graphs, Bench& eager, const Case& c, bool list) {
    constexpr int kRounds = 3;
    std::vector<double> times;
    std::vector<LayerKernels> layers;
    for (int round = 0; round < kRounds; ++round) {
        times.push_back(layer_us(graphs, c));
        const auto more = kernel_times(eager, c);
        layers.insert(layers.end(), more.begin(), more.end());
    }
    std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
    const double layer = times[kRounds / 2];
    const auto mean = [&](const auto& of_layer) {
        double sum = 0;
        for (const LayerKernels& l : layers) sum += of_layer(l);
        return sum / static_cast<double>(layers.size());
    };
    const double mla = mean([](const LayerKernels& l) { return sum_us(l.attention, is_mla); });
    const double products = mean([](const LayerKernels& l) {
        return sum_us(l.attention, is_product) + sum_us(l.experts, is_product);
    });
    const double grouped =
        mean([](const LayerKernels& l) { return expert_side_of(l.experts).grouped_us; });
    const double experts = mean([](const LayerKernels& l) { return expert_side_of(l.experts).us; });
    const double all = mean(
        [](const LayerKernels& l) { return sum_us(l.attention, any) + sum_us(l.experts, any); });
    const double attention = layer - experts, must = products - grouped + mla;
    std::printf(
        "%6ld %7ld | %7.1f | %7.1f %8.1f %7.1f %6.2f | %7.1f %8.1f %6.2f | %7.1f %6.1f %%\n",
        static_cast<long>(c.rows), static_cast<long>(c.context), layer, attention, must, mla,
        attention / must, experts, grouped, experts / grouped, all, 100 * (layer - all) / layer);
    if (list) {
        list_kernels("attention", layers, &LayerKernels::attention);
        list_kernels("experts", layers, &LayerKernels::experts);
    }
    std::fflush(stdout);
}

void report_memory(const ModelConfig& config, int64_t positions, int64_t before,
                   std::vector<int64_t> rows, int64_t pool) {
    const CardStep largest{.rows = kMaxRows,
                           .logits_rows = 1024,
                           .sequences = kMaxRows,
                           .positions = positions,
                           .rope_positions = positions,
                           .num_local_experts = config.n_routed_experts,
                           .deterministic = false,
                           .num_graphs = std::ssize(rows)};
    std::printf("a rank of %ld rows: %s planned, %s taken\n", static_cast<long>(kMaxRows),
                format_bytes(card_step_bytes(config, largest) -
                             card_allocation(positions * config.qk_rope_head_dim * 4))
                    .c_str(),
                format_bytes(before - card::memory_free() - card_allocation(pool)).c_str());
}

void run(int heads, bool list) {
    const std::vector<Case> cases = {{1, 4096},   {16, 4096},   {64, 4096},  {128, 4096},
                                     {512, 4096}, {1024, 4096}, {64, 32768}, {128, 32768}};
    const int64_t positions = 128 * (32768 + 64) + 1024 * (4096 + 64);
    std::vector<int64_t> rows;
    for (const Case& c : cases)
        if (c.context == 4096 && c.rows <= StepNumbers::kFewRows) rows.push_back(c.rows);
    const ModelConfig config = deepseek_v3(kLayers, heads, 32);
    const auto model = Bench::dummy(config);
    Bench eager(*model, {}, positions, kMaxRows);  // also loads what is loaded at first calls
    const int64_t before = card::memory_free();
    Bench graphs(*model, rows, positions, kMaxRows);
    report_memory(config, model->rope->max_position(), before, rows,
                  static_cast<int64_t>(graphs.replica().pool(0).num_bytes()));
    std::printf("\n%d heads, 32 experts; us a MoE layer\n", heads);
    std::printf("%6s %7s | %7s | %7s %8s %7s %6s | %7s %8s %6s | %7s %s\n", "rows", "context",
                "layer", "attn", "GEMM+MLA", "MLA", "ratio", "experts", "grouped", "ratio",
                "kernels", "not in kernels");
    for (const Case& c : cases) run_case(graphs, eager, c, list);
}

}  // namespace
}  // namespace aerie::bench

int main(int argc, char** argv) {
    int heads = 128;
    bool list = false;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--heads") == 0 && i + 1 < argc) heads = std::atoi(argv[++i]);
        if (std::strcmp(argv[i], "--kernels") == 0) list = true;
    }
    if (aerie::card::count() == 0) {
        std::puts("sides_bench: no GPU is here");
        return 1;
    }
    aerie::set_log_level(aerie::LogLevel::kWarning);
    aerie::bench::run(heads, list);
}
