// The attention side of the exchange: one for each attention rank, used by that rank's thread only.
// The contract stands in docs/contracts.md (mailboxes).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "comm/fabric.h"
#include "exchange/phase.h"
#include "kernels/norm.h"
#include "metrics/components.h"
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
    // copied: they may be reused when it returns. The slot must be free. Does not wait for a peer:
    // what cannot be sent now is sent when its expert rank, or another copy of it, is there.
    // rows = 0 is allowed and sends nothing.
    virtual Status dispatch(const Dispatch& dispatch) = 0;

    // Waits for what came of the slot's dispatch and adds it to `sum`, f32 [rows, hidden], in
    // ascending expert rank. Frees the slot, also where it fails. The error says who waited for
    // whom, for which layer and microbatch, and how long.
    virtual Status combine(int slot, View sum) = 0;

    // combine() into `sum`, and what a layer does with that: x = round(x + sum), normed = rms_norm(x), as
    // kernels::add_partials_and_norm on the stream. Where that is one kernel, `sum` keeps what it was.
    struct Residual {
        View sum;                      // [rows, hidden] what is added to x beside the experts' part
        View x;                        // [rows, hidden] compute type: the residual stream
        const float* weight = nullptr;  // of the norm, [hidden]
        float eps = 0;
        View normed;  // [rows, hidden] compute type
    };
    virtual Status combine_and_norm(int slot, Stream& stream, const Residual& r) {
        RETURN_IF_ERROR(combine(slot, r.sum));
        if (r.sum.rows == 0) return {};
        const ConstView sum = r.sum;
        kernels::add_partials_and_norm(stream, r.x, {&sum, 1}, r.weight, r.eps, r.normed);
        return {};
    }

    // Frees all slots after a step that failed; what comes of them later is dropped.
    virtual void reset() = 0;

    // Whether both only put work on a card's stream and wait for nobody, so that a graph can hold it.
    virtual bool stays_in_stream() const { return false; }
};

struct AttentionSideOptions {
    int attention_rank = 0;  // numbered over the cluster
    comm::Fabric* fabric = nullptr;
    DType compute = DType::kBF16;
    int hidden = 0;
    int topk = 0;
    int max_rows = 0;                // of one dispatch
    std::vector<int> expert_begin;   // [ep + 1]: expert rank r holds experts begin[r] … begin[r+1]-1
    std::vector<std::vector<comm::Destination>> copies;  // [expert_dp][ep]: where each rank listens
    int first_copy = 0;              // the copy that this replica prefers
    double timeout_s = 30;           // the longest wait for a combine
    // Called while waiting: runs work of an expert rank of this process, if some is there, and tells
    // whether it did. May be empty.
    std::function<bool()> help;
    metrics::AttentionMetrics metrics;
};

// Opens the rank's port on the fabric; the fabric must outlive it.
std::unique_ptr<AttentionSide> make_attention_side(AttentionSideOptions options);

}  // namespace aerie::exchange
