// The expert side of the exchange: the mailboxes of one expert rank. Messages arrive on threads of
// the fabric; take() and reply() are called by one thread at a time. No request state lives here.
// The contract stands in docs/contracts.md (mailboxes).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "comm/fabric.h"
#include "exchange/phase.h"
#include "kernels/experts.h"
#include "tensor/view.h"

namespace aerie::exchange {

// A microbatch that waits for one layer. Views are valid until its reply().
struct Waiting {
    int mailbox;                          // attention_rank · slots + slot
    int layer;
    Phase phase;
    ConstView hidden;                     // [rows, hidden] compute type
    const int32_t* offsets;               // [rows + 1]
    const kernels::ExpertChoice* choices; // [offsets[rows]], local experts
    TimePoint arrived;
};

struct ExpertSideOptions {
    int expert_rank = 0;  // numbered over the cluster: copy · ep + ep_rank
    int ep_rank = 0;
    int num_experts = 0;  // that this rank holds
    comm::Fabric* fabric = nullptr;
    DType compute = DType::kBF16;
    int hidden = 0;
    int topk = 0;
    int max_rows = 0;  // of one dispatch
    std::vector<comm::Destination> attention_ranks;  // [attention ranks]: where each listens
    int group_rows_max = 4096;    // rows that are computed together
    double prefill_wait_s = 0.02; // after which prefill goes before decode
};

class ExpertSide {
  public:
    virtual ~ExpertSide() = default;

    // The microbatches to compute together now, all of one layer, or none: decode goes first, then
    // prefill; prefill that has waited prefill_wait_s goes before. Does not block. The span is valid
    // until the next take().
    virtual std::span<const Waiting> take() = 0;
    // The rows to fill for what was taken: [rows, hidden] compute type. They stay as they are until
    // the mailbox's next dispatch.
    virtual View output(const Waiting& waiting) = 0;
    // Sends the combine. A peer that is gone is no error: nobody waits for it.
    virtual void reply(const Waiting& waiting) = 0;

    // Sleeps until something waits, or wake() was called, or the deadline. True where something
    // waits.
    // What comes from the own process wakes nobody: the attention rank that sent it computes it itself
    // when it waits (AttentionSideOptions::help), which saves two wake-ups a layer.
    virtual bool wait(TimePoint deadline) = 0;
    virtual void wake() = 0;
    virtual bool something_waits() = 0;
};

// Opens the rank's port on the fabric; the fabric must outlive it.
std::unique_ptr<ExpertSide> make_expert_side(ExpertSideOptions options);

}  // namespace aerie::exchange
