// A layer of DeepSeek-V3 on one card, attention with its experts behind it, as a server runs it:
// whole steps of two models that differ by two MoE layers, from the host's call to the logits, so
// that half the difference is a layer. Weights are random (load_format dummy); KV is random.
//
// usage: layer_bench [--experts N] [--heads N] [--only decode|prompts]
//        N experts of the model's 256 (32: one card's of eight), N heads of its 128.
//
// `limit` is the larger of bytes and operations, of the products (FP8, weights read once, those of
// the experts that 8 choices a row reach) and of attention each, at what one H200 was measured to
// do.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/log.h"
#include "bench/gpu/layer_model.h"

namespace aerie::bench {
namespace {

constexpr double kBandwidth = 4.6e12, kFp8 = 1351e12, kBf16 = 770e12;  // a second
constexpr int kFewLayers = 2, kMoreLayers = 4;                         // the first one dense
constexpr int64_t kMaxRows = 4096;

// Microseconds that the card needs at the least for a layer of the case's rows. Decode's attention
// is absorbed, and reads each sequence's KV; a prompt's would be cheaper with keys and values per
// head.
double limit_us(const ModelConfig& m, const Case& c) {
    const double hidden = m.hidden_size, heads = m.num_attention_heads;
    const auto rows = static_cast<double>(c.rows), context = static_cast<double>(c.context);
    const double q_and_o = (m.q_lora_rank + m.latent_dim()) * hidden +
                           heads * m.qk_head_dim() * m.q_lora_rank + hidden * heads * m.v_head_dim;
    const double heads_kv = heads * m.kv_lora_rank * (m.qk_nope_head_dim + m.v_head_dim);  // bf16
    const double expert = 3.0 * hidden * m.moe_intermediate_size;
    const double experts = m.n_routed_experts;
    const double reached = experts * (1 - std::pow(1 - m.num_experts_per_tok / experts, rows));
    const double bytes = q_and_o + 2 * heads_kv + expert * (1 + reached);
    const double products = std::max(
        bytes / kBandwidth,
        2 * rows * ((q_and_o + expert * (1 + m.num_experts_per_tok)) / kFp8 + heads_kv / kBf16));
    const double latent_bytes = context * m.latent_dim() * 2;
    const double attention =
        c.prefill
            ? std::max(latent_bytes / kBandwidth, 2 * rows * (context - rows / 2) * heads *
                                                      (m.qk_head_dim() + m.v_head_dim) / kBf16)
            : std::max(rows * latent_bytes / kBandwidth,
                       2 * rows * context * heads * (m.latent_dim() + m.kv_lora_rank) / kBf16);
    return (products + attention) * 1e6;
}

void run(int heads, int experts, const std::string& only) {
    std::vector<Case> cases;
    if (only != "prompts") {
        for (const int64_t rows : {1, 4, 16, 64, 128, 256, 512, 1024})
            cases.push_back({rows, 4096});
        cases.push_back({64, 32768});
    }
    if (only != "decode")
        for (const int64_t context : {4096, 16384, 32768})
            cases.push_back({kMaxRows, context, true});
    int64_t positions = 0;  // of all cases, as none gives back its blocks
    for (const Case& c : cases) positions += (c.prefill ? 1 : c.rows) * (c.context + 64);

    std::vector<int64_t> graph_rows = {1, 4, 16, 64, 128, 256, 512};
    if (only == "prompts") graph_rows.clear();
    std::vector<double> times[2][2];  // [graph][more layers]
    for (const bool more : {false, true}) {
        const ModelConfig config = deepseek_v3(more ? kMoreLayers : kFewLayers, heads, experts);
        for (const bool graph : {false, true}) {
            if (graph && graph_rows.empty()) {
                times[1][more] = times[0][more];
                continue;
            }
            const auto model = Bench::dummy(config);
            Bench bench(*model, graph ? graph_rows : std::vector<int64_t>(), positions, kMaxRows);
            for (const Case& c : cases) times[graph][more].push_back(bench.step_us(c));
        }
    }
    std::printf("\n%d heads, %d experts; us a MoE layer\n%8s %8s %9s %9s %9s %7s\n", heads, experts,
                "rows", "context", "kernels", "graph", "limit", "ratio");
    const ModelConfig config = deepseek_v3(kMoreLayers, heads, experts);
    for (size_t i = 0; i < cases.size(); ++i) {
        const auto layer = [&](bool graph) {
            return (times[graph][1][i] - times[graph][0][i]) / (kMoreLayers - kFewLayers);
        };
        const Case& c = cases[i];
        const double limit = limit_us(config, c);
        std::printf("%8ld %8ld %9.1f %9.1f %9.1f %7.2f%s\n", static_cast<long>(c.rows),
                    static_cast<long>(c.context), layer(false), layer(true), limit,
                    layer(true) / limit, c.prefill ? "  prefill, no graph" : "");
    }
}

}  // namespace
}  // namespace aerie::bench

int main(int argc, char** argv) {
    int heads = 128, experts = 32;
    std::string only;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (std::strcmp(argv[i], "--heads") == 0) heads = std::atoi(argv[i + 1]);
        if (std::strcmp(argv[i], "--experts") == 0) experts = std::atoi(argv[i + 1]);
        if (std::strcmp(argv[i], "--only") == 0) only = argv[i + 1];
    }
    if (aerie::card::count() == 0) {
        std::puts("layer_bench: no GPU is here");
        return 1;
    }
    aerie::set_log_level(aerie::LogLevel::kWarning);
    aerie::bench::run(heads, experts, only);
}
