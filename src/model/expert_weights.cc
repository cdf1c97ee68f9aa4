#include "model/expert_weights.h"

#include "model/load_jobs.h"
#include "model/model_support.h"

namespace aerie::model {
namespace {

// All in one, as the card's grouped products want them (kernels/cuda/kernels.h).
Result<std::vector<kernels::ExpertWeights>> load_stack(const ModelConfig& config, int layer, int begin,
                                                       int end, WeightStore& store) {
    const int64_t hidden = config.hidden_size, inner = config.moe_intermediate_size;
    std::vector<WeightSlice> gate_up, down;
    for (int expert = begin; expert < end; ++expert) {
        const std::string prefix = fmt::format("model.layers.{}.mlp.experts.{}.", layer, expert);
        gate_up.push_back({.module = prefix + "gate_proj", .rows = inner, .cols = hidden});
        gate_up.push_back({.module = prefix + "up_proj", .rows = inner, .cols = hidden});
        down.push_back({.module = prefix + "down_proj", .rows = hidden, .cols = inner});
    }
    auto first = store.pack_one_by_one(gate_up);
    if (!first) return first.error();
    auto second = store.pack_one_by_one(down);
    if (!second) return second.error();
    std::vector<kernels::ExpertWeights> stack;
    stack.push_back({*std::move(first), *std::move(second)});
    return stack;
}

Result<std::vector<kernels::ExpertWeights>> load_layer(const ModelConfig& config, int layer, int begin,
                                                       int end, WeightStore& store) {
    if (store.options().device == Device::kCuda) return load_stack(config, layer, begin, end, store);
    std::vector<kernels::ExpertWeights> experts;
    for (int expert = begin; expert < end; ++expert) {
        const std::string prefix = fmt::format("model.layers.{}.mlp.experts.{}.", layer, expert);
        auto weights =
            load_ffn(store, prefix, config.hidden_size, config.moe_intermediate_size);
        if (!weights) return weights.error();
        experts.push_back(*std::move(weights));
    }
    return experts;
}

}  // namespace

Result<RoutedExperts> load_routed_experts(const ModelConfig& config, const ExpertSlice& slice,
                                          WeightStore& store, Stream& stream) {
    RETURN_IF_ERROR(check_supported(config));
    const int begin = slice.expert_begin, end = slice.expert_end;
    CHECK(0 <= begin && begin <= end && end <= config.n_routed_experts, "experts {}..{} of {}", begin,
          end, config.n_routed_experts);
    RoutedExperts experts{begin, end, {}};
    experts.layers.resize(static_cast<size_t>(config.num_hidden_layers + (slice.with_mtp ? 1 : 0)));
    LoadJobs jobs(store);
    for (int layer = 0; layer < static_cast<int>(experts.layers.size()); ++layer) {
        if (!layer_is_moe(config, layer)) continue;
        jobs.add(experts.layers[layer],
                 fmt::format("model.layers.{}.mlp.experts {}:{}", layer, begin, end),
                 [&config, &store, layer, begin, end] {
                     return load_layer(config, layer, begin, end, store);
                 });
    }
    RETURN_IF_ERROR(jobs.run(stream, fmt::format("experts {}..{}", begin, end - 1)));
    return experts;
}

}  // namespace aerie::model
