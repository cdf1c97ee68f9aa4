// Layers of DeepSeek-V3's shape on a card, with random weights and KV: what benches of whole steps
// share.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "base/clock.h"
#include "model/testing/replica.h"
#include "tensor/card.h"

namespace aerie::bench {

using namespace model;

inline void check(const Status& status) { CHECK(status.ok(), "{}", status.message()); }

// The first layer is dense.
inline ModelConfig deepseek_v3(int num_layers, int heads, int experts) {
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

// A replica of one card, and steps of it.
class Bench {
  public:
    static std::unique_ptr<TestModel> dummy(const ModelConfig& config) {
        return TestModel::dummy(
            config, {.compute = DType::kBF16, .keep_fp8 = true, .device = Device::kCuda}, 1);
    }
    // positions: of all sequences of all steps, as none gives back its blocks.
    Bench(TestModel& model, std::vector<int64_t> graph_rows, int64_t positions, int64_t max_rows) {
        auto made =
            TestReplica::create(model, {.max_rows = max_rows,
                                        .tile_rows = max_rows,
                                                  .expand = true,
                                        .max_positions = positions,
                                        .max_logits_rows = std::min<int64_t>(max_rows, 1024),
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

    TestReplica& replica() { return *replica_; }

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

    std::unique_ptr<TestReplica> replica_;
    int num_sequences_ = 0;
    std::vector<int64_t> lengths_;
};

}  // namespace aerie::bench
