// What a rank of a card allocates beside weights and KV pool, all of it at start: sums of what
// model/attention_rank_impl.h, model/step_numbers.h, kernels/cuda and exchange/card_side.h take.
// tests/golden/card_test.cc holds the sums to the card's own count. Bytes. Pure functions.
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace aerie {

// What CUDA takes of a card in each process: context, kernels of this build, their local memory.
// Measured on an H200 (docs/measured_gpu.md), rounded up.
inline constexpr int64_t kCardContextBytes = int64_t{640} << 20;
// Of one operation of a CUDA graph, likewise.
inline constexpr int64_t kGraphNodeBytes = 4096;

// Of a kernels::DrawParams.
inline constexpr int64_t kDrawBytes = 40;

// What the card's allocator takes for an allocation: large ones are whole units of 2 MiB.
int64_t card_allocation(int64_t num_bytes);

// Whether a card computes prompts with keys and values per head, which deterministic steps do not:
// kernels/attention.h's MlaStep::expands.
bool card_expands(const ModelConfig& model);

// The largest step of an attention rank.
struct CardStep {
    int64_t rows = 0;  // of the replica's step
    int64_t logits_rows = 0;
    int64_t sequences = 0;       // at most
    int64_t positions = 0;       // of the longest sequence
    int64_t rope_positions = 0;  // that angles are kept for
    int page_size = 64;
    int tp_size = 1;
    int cp_size = 1;
    int num_local_experts = 0;  // routed experts that the same stream computes; 0: none
    bool deterministic = true;
    bool mtp = false;
    int64_t num_graphs = 0;
};
// Buffers of the model (Workspace).
int64_t card_workspace_bytes(const ModelConfig& model, const CardStep& step);
// All: those, integers, rope table, kernels' own memory, graphs.
int64_t card_step_bytes(const ModelConfig& model, const CardStep& step);
// Kernels' own memory for the routed experts of so many rows (kernels/cuda/experts.cu,
// fp8_experts.cu).
int64_t card_expert_scratch_bytes(const ModelConfig& model, int64_t rows, int num_experts,
                                  bool deterministic);

}  // namespace aerie
