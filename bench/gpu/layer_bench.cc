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
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "model/testing/replica.h"
#include "tensor/card.h"

namespace aerie::bench {
namespace {

using namespace model;

constexpr double kBandwidth = 4.6e12, kFp8 = 1351e12, kBf16 = 770e12;  // a second
constexpr int kFewLayers = 2, kMoreLayers = 4;                         // the first one dense
constexpr int64_t kMaxRows = 4096;

void check(const Status& status) { CHECK(status.ok(), "{}", status.message()); }

ModelConfig deepseek_v3(int num_layers, int heads, int experts) {
    ModelConfig c;
    c.vocab_size = 8192;  // of 129280: not what is measured
    c.hidden_size = 7168;
    c.intermediate_size = 18432;
    c.moe_intermediate_size = 2048;
    c.num_hidden_layers = num_layers;
    c.first_k_dense_replace = 1;
    c.max_position_embeddings = 163840;
    c.num_attention_heads = heads;
    c.q_lora_rank = 1536;
    c.kv_lora_rank = 512;
    c.qk_nope_head_dim = 128;
    c.qk_rope_head_dim = 64;
    c.v_head_dim = 128;
    c.n_routed_experts = experts;
    c.num_experts_per_tok = 8;
    c.n_shared_experts = 1;
    c.n_group = 8;
    c.topk_group = 4;
    c.routed_scaling_factor = 2.5;
    c.quantization_config.emplace();
    c.quantization_config->block_n = c.quantization_config->block_k = 128;
    return c;
}

struct Case {
    int64_t rows = 1;  // sequences of one row each, or one of many
    int64_t context = 4096;
    bool prefill = false;
};

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

class Bench {
  public:
    Bench(const ModelConfig& config, std::vector<int64_t> graph_rows, int64_t positions) {
        model_ = TestModel::dummy(
            config, {.compute = DType::kBF16, .keep_fp8 = true, .device = Device::kCuda}, 1);
        auto made = TestReplica::create(*model_, {.max_rows = kMaxRows,
                                                  .tile_rows = kMaxRows,
                                                  .expand = true,
                                                  .max_positions = positions,
                                                  .max_logits_rows = 1024,
                                                  .num_threads = 16,
                                                  .device = Device::kCuda,
                                                  .graph_rows = std::move(graph_rows),
                                                  .deterministic = false});
        CHECK(made.ok(), "{}", made.message());
        replica_ = *std::move(made);
        fill(replica_->pool(0));
    }

    // Microseconds of a step, the median of several.
    double step_us(const Case& c) {
        while (num_sequences_ < (c.prefill ? 1 : c.rows)) {
            replica_->add_sequence(std::vector<int32_t>(1, 0));
            ++num_sequences_;
        }
        std::vector<StepPart> parts;
        if (c.prefill) {
            const int sequence =
                replica_->add_sequence(std::vector<int32_t>(static_cast<size_t>(c.context), 5));
            ++num_sequences_;
            parts.push_back({sequence, c.rows});
            lengths_ = {c.context - c.rows};
        } else {
            for (int s = 0; s < c.rows; ++s) parts.push_back({s, 1});
            lengths_.assign(static_cast<size_t>(c.rows), c.context - 1);
        }
        std::vector<double> times;
        for (int i = 0; i < 12; ++i) {
            for (size_t p = 0; p < parts.size(); ++p) {
                replica_->extend(parts[p].sequence, lengths_[p] + parts[p].num_tokens);
                replica_->skip(parts[p].sequence, lengths_[p]);
            }
            const TimePoint begin = Clock::now();
            check(replica_->step(parts));
            if (i >= 3) times.push_back(seconds_since(begin) * 1e6);
        }
        std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
        return times[times.size() / 2];
    }

  private:
    static void fill(KvPool& pool) {
        std::vector<BF16> values(32 << 20);
        std::minstd_rand random(3);
        for (BF16& v : values)
            v = bf16_from_f32(static_cast<float>(random() % 2001) / 1000.0f - 1.0f);
        const size_t part = values.size() * sizeof(BF16);
        for (size_t at = 0; at < pool.num_bytes(); at += part)
            card::copy_now(pool.layer(0) + at, values.data(),
                           std::min(part, pool.num_bytes() - at));
    }

    std::unique_ptr<TestModel> model_;
    std::unique_ptr<TestReplica> replica_;
    int num_sequences_ = 0;
    std::vector<int64_t> lengths_;
};

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

    std::vector<int64_t> graph_rows = {1, 4, 16, 64, 128, 256, 512, 1024};
    if (only == "prompts") graph_rows.clear();
    std::vector<double> times[2][2];  // [graph][more layers]
    for (const bool more : {false, true}) {
        const ModelConfig config = deepseek_v3(more ? kMoreLayers : kFewLayers, heads, experts);
        for (const bool graph : {false, true}) {
            if (graph && graph_rows.empty()) {
                times[1][more] = times[0][more];
                continue;
            }
            Bench bench(config, graph ? graph_rows : std::vector<int64_t>(), positions);
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
