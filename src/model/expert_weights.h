// The routed experts of one expert rank. Needs no tensor of attention.
#pragma once

#include <span>
#include <vector>

#include "config/model_config.h"
#include "kernels/experts.h"
#include "model/weight_store.h"
#include "tensor/stream.h"

namespace aerie::model {

struct RoutedExperts {
    int expert_begin = 0;  // of the model: local expert i is expert_begin + i
    int expert_end = 0;
    // [num_hidden_layers (+ 1 with MTP)] the experts of each layer, null for dense layers; owned by
    // the store. On the card a layer has one entry, the experts stacked.
    std::vector<const std::vector<kernels::ExpertWeights>*> layers;

    std::span<const kernels::ExpertWeights> layer(int layer) const { return *layers[layer]; }
};

struct ExpertSlice {
    int expert_begin = 0;
    int expert_end = 0;
    bool with_mtp = false;
};

Result<RoutedExperts> load_routed_experts(const ModelConfig& config, const ExpertSlice& slice,
                                          WeightStore& store, Stream& stream);

}  // namespace aerie::model
