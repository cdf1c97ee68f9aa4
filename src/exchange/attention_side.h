// The attention side of the exchange: one for each attention rank, used by that rank's thread only.
// The contract stands in docs/contracts.md (mailboxes).
#pragma once

#include <cstdint>

#include "base/result.h"
#include "exchange/phase.h"
#include "tensor/view.h"

namespace aerie::exchange {

// What a microbatch sends to the experts of one layer.
struct Dispatch {
    int slot;              // microbatch in flight, 0 … 2
    int layer;
    Phase phase;
    ConstView hidden;      // [rows, hidden] compute type
    const int32_t* ids;    // [rows, topk] routed expert of the model
    const float* weights;  // [rows, topk]
    int topk;
};

class AttentionSide {
  public:
    virtual ~AttentionSide() = default;

    // Sends each row once to each expert rank that holds one of its experts. The arguments are
    // copied: they may be reused when it returns. The slot must be free. Does not wait for a peer.
    // rows = 0 is allowed and sends nothing.
    virtual Status dispatch(const Dispatch& dispatch) = 0;

    // Waits for what came of the slot's dispatch and adds it to `sum`, f32 [rows, hidden], in
    // ascending expert rank. Frees the slot. The error says who waited for whom and how long.
    virtual Status combine(int slot, View sum) = 0;
};

}  // namespace aerie::exchange
