// Routing: which experts a token goes to, and with what weights.
#pragma once

#include <cstdint>

#include "tensor/stream.h"
#include "tensor/view.h"

namespace aerie::kernels {

enum class Scoring : uint8_t { kSigmoid, kSoftmax };
enum class TopkMethod : uint8_t { kGreedy, kGroupLimitedGreedy, kNoauxTc };

// scores s = sigmoid(logits) or softmax(logits); choice = s (+ bias where noaux_tc).
// noaux_tc: a group's score is the sum of its two best choices; group_limited_greedy: its best one.
// The topk_group best groups stay, and of them the top_k best choices. At every selection the lower
// index wins ties. weights = s[ids] (without bias), divided by (their sum, in the order of ids, +
// 1e-20) where norm_topk_prob, then times routed_scaling_factor. ids are in descending order of
// choice. All in fp32.
struct GateArgs {
    ConstView logits;             // [rows, num_experts] float32
    const float* bias = nullptr;  // [num_experts], noaux_tc only; null counts as 0
    Scoring scoring = Scoring::kSigmoid;
    TopkMethod method = TopkMethod::kNoauxTc;
    int num_groups = 1;  // n_group; divides num_experts
    int topk_group = 1;  // at most num_groups
    int top_k = 1;       // at most num_experts · topk_group / num_groups
    bool norm_topk_prob = true;
    float routed_scaling_factor = 1.0f;
    int32_t* ids = nullptr;    // [rows, top_k]
    float* weights = nullptr;  // [rows, top_k]
};

inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxExpertGroups = 64;

void gate(Stream& stream, const GateArgs& args);

}  // namespace aerie::kernels
