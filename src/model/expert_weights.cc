#include "model/expert_weights.h"

#include "model/load_jobs.h"
#include "model/model_support.h"

namespace aerie::model {
namespace {

Result<std::vector<kernels::ExpertWeights>> load_layer(const ModelConfig& config, int layer, int begin,
                                                       int end, WeightStore& store) {
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
