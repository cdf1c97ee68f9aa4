// Plan: what one step of a replica computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "request/request.h"
#include "schedule/sequence.h"

namespace aerie::schedule {

// Computes positions [first, first + num_tokens) of a sequence. tokens[] of these positions are
// known once the results of all earlier steps were given to the scheduler.
struct PlanEntry {
    Sequence* sequence = nullptr;  // valid until on_result() of this plan returns
    int first = 0;
    int num_tokens = 0;
    bool sample = false;  // the logits of the last position give a token
};

// A sequence that lost its blocks. On a decode replica it goes back to a prefill replica with its
// tokens; on a unified one it waits in the queue again, and this is for the log.
struct Retracted {
    RequestId id = 0;
    std::vector<int32_t> tokens;  // prompt and output so far
    int num_output = 0;           // of these, output
};

struct Plan {
    uint64_t step = 0;               // 1, 2, …; 0 for an empty plan
    std::vector<PlanEntry> prefill;  // a step may hold both
    std::vector<PlanEntry> decode;
    std::vector<Retracted> retracted;  // may be there in an empty plan too
    int num_prompt_logprobs = 0;       // rows of prefill whose logits are wanted for the prompt's sake

    // Nothing to compute: ask again after the next event (a result, a new request, an offer, …).
    bool empty() const { return prefill.empty() && decode.empty(); }
};

// What a step sampled for one entry: one token, or several where drafts were accepted.
struct Advance {
    Sequence* sequence = nullptr;
    std::span<const int32_t> tokens;  // not empty
};

}  // namespace aerie::schedule
