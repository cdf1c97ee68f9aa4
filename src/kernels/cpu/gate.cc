#include "kernels/gate.h"

#include <algorithm>
#include <limits>
#include <span>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_io.h"
#include "kernels/on_card.h"

namespace aerie::kernels {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// The index of the largest value, the lowest one among equals; taken values are kNever.
int best_of(std::span<const float> values) {
    int best = 0;
    for (int i = 1; i < static_cast<int>(values.size()); ++i)
        if (values[i] > values[best]) best = i;
    return best;
}

// Sum of the two best, or the best one.
float group_score(std::span<const float> choice, bool two_best) {
    float first = kNever, second = kNever;
    for (float c : choice) {
        if (c > first) {
            second = first;
            first = c;
        } else if (c > second) {
            second = c;
        }
    }
    return two_best && choice.size() > 1 ? first + second : first;
}

// Sets the choices of all but the topk_group best groups to kNever.
void keep_best_groups(const GateArgs& args, std::span<float> choice) {
    const int size = static_cast<int>(choice.size()) / args.num_groups;
    float scores[kMaxExpertGroups];
    bool kept[kMaxExpertGroups] = {};
    for (int g = 0; g < args.num_groups; ++g)
        scores[g] =
            group_score(choice.subspan(g * size, size), args.method == TopkMethod::kNoauxTc);
    for (int i = 0; i < args.topk_group; ++i) {
        const int g = best_of({scores, static_cast<size_t>(args.num_groups)});
        kept[g] = true;
        scores[g] = kNever;
    }
    for (int g = 0; g < args.num_groups; ++g)
        if (!kept[g]) std::ranges::fill(choice.subspan(g * size, size), kNever);
}

void score_row(const CpuOps& op, const GateArgs& args, const float* logits,
               std::span<float> scores) {
    const int64_t n = static_cast<int64_t>(scores.size());
    if (args.scoring == Scoring::kSigmoid) {
        op.sigmoid(logits, n, scores.data());
        return;
    }
    op.exp(logits, *std::max_element(logits, logits + n), n, scores.data());
    float total = 0;
    for (float s : scores) total += s;
    for (float& s : scores) s /= total;
}

void gate_row(const CpuOps& op, const GateArgs& args, int64_t row) {
    const size_t n = static_cast<size_t>(args.logits.cols);
    float score_memory[kMaxExperts];
    float choice_memory[kMaxExperts];
    const std::span<float> scores(score_memory, n), choice(choice_memory, n);
    score_row(op, args, args.logits.row_as<float>(row), scores);
    const bool biased = args.method == TopkMethod::kNoauxTc && args.bias != nullptr;
    for (size_t e = 0; e < n; ++e) choice[e] = biased ? scores[e] + args.bias[e] : scores[e];
    if (args.method != TopkMethod::kGreedy && args.topk_group < args.num_groups)
        keep_best_groups(args, choice);

    int32_t* ids = args.ids + row * args.top_k;
    float* weights = args.weights + row * args.top_k;
    float total = 0;
    for (int i = 0; i < args.top_k; ++i) {
        ids[i] = best_of(choice);
        choice[ids[i]] = kNever;
        weights[i] = scores[ids[i]];
        total += weights[i];
    }
    for (int i = 0; i < args.top_k; ++i) {
        if (args.norm_topk_prob) weights[i] /= total + 1e-20f;
        weights[i] *= args.routed_scaling_factor;
    }
}

}  // namespace

void gate(Stream& stream, const GateArgs& args) {
    const int64_t experts = args.logits.cols;
    CHECK(args.logits.dtype == DType::kF32, "logits are {}", name_of(args.logits.dtype));
    CHECK(experts <= kMaxExperts && args.num_groups >= 1 && args.num_groups <= kMaxExpertGroups &&
              experts % args.num_groups == 0 && args.topk_group >= 1 &&
              args.topk_group <= args.num_groups && args.top_k >= 1 &&
              args.top_k <= experts / args.num_groups * args.topk_group,
          "{} experts, {} of {} groups, {} a token", experts, args.topk_group, args.num_groups,
          args.top_k);
    ON_CARD(stream, gate(stream, args));
    const CpuOps& op = ops();
    parallel_rows(stream, args.logits.rows, experts * (4 + 2 * args.top_k),
                  [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) gate_row(op, args, i);
                  });
}

}  // namespace aerie::kernels
