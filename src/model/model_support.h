// What this implementation can do with a ModelConfig, and small facts derived from one.
#pragma once

#include "config/model_config.h"
#include "kernels/experts.h"
#include "kernels/rope.h"
#include "model/weight_store.h"

namespace aerie::model {

// An error that names the field for shapes that the kernels cannot compute.
Status check_supported(const ModelConfig& config);

// The MTP layer (number num_hidden_layers) is a MoE layer wherever the model has any.
bool layer_is_moe(const ModelConfig& config, int layer);

kernels::RopeParams rope_params(const ModelConfig& config);

// One SwiGLU network: <prefix>{gate,up,down}_proj. For WeightStore::get.
Result<kernels::ExpertWeights> load_ffn(WeightStore& store, const std::string& prefix, int64_t hidden,
                                        int64_t inner);

}  // namespace aerie::model
