// The exchange of a card that holds attention and all experts: one stream, where dispatch puts the
// experts' kernels behind those of attention, and nobody waits.
#pragma once

#include <memory>
#include <vector>

#include "exchange/attention_side.h"
#include "kernels/experts.h"
#include "tensor/stream.h"

namespace aerie::exchange {

struct CardSideOptions {
    Stream* stream = nullptr;  // the attention rank's; outlives the side
    // [layers] the routed experts of each layer, stacked on the card (kernels/cuda/kernels.h);
    // null: the layer is dense. They outlive the side.
    std::vector<const kernels::ExpertWeights*> layers;
    int num_experts = 0;
    int hidden = 0;
    int max_rows = 0;  // of one dispatch
};

// Of a Dispatch, hidden, ids and weights are the card's; combine's sum is bfloat16. One dispatch is in
// flight at a time: its results lie in the stream's own memory.
std::unique_ptr<AttentionSide> make_card_side(const CardSideOptions& options);

}  // namespace aerie::exchange
