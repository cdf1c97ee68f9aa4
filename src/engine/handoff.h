// KvHandoff: how a request's KV comes to a replica and leaves it. The leader's loop is the same for
// every role; what differs between a prefill, a decode and a unified replica is here. Leader thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "request/request.h"
#include "schedule/scheduler.h"
#include "transfer/decode_side.h"
#include "transfer/prefill_side.h"

namespace aerie::engine {

class KvHandoff {
  public:
    virtual ~KvHandoff() = default;

    virtual void add(const Request& request) = 0;
    virtual void abort(RequestId id) = 0;
    // The step that computed it failed: the client is told `why`.
    virtual void fail(RequestId id, const std::string& why) = 0;
    // News of the other side, and what follows from them. Tokens gained go to `out`.
    virtual void receive(std::vector<TokenOut>& out) = 0;
    // The plan has been made; its retracted sequences find their way.
    virtual void planned(const schedule::Plan& plan, std::vector<TokenOut>& out) = 0;
    // Rank thread (tp 0 of cp rank `cp_rank`): the KV of this layer is complete for the step's prefill chunks.
    virtual void layer_done(int cp_rank, int layer) = 0;
    // The step's tokens: those that the client may see stay in `out`.
    virtual void sampled(std::vector<TokenOut>& out) = 0;
};

// One replica does all: prompts and outputs stay in its own pool.
std::unique_ptr<KvHandoff> make_unified_handoff(schedule::Scheduler& scheduler);

std::unique_ptr<KvHandoff> make_prefill_handoff(schedule::Scheduler& scheduler,
                                                transfer::PrefillSideOptions options,
                                                transfer::Policy policy);

// copy_kv: makes the scheduler's take_copies(); called before an offer lets a push into a block.
// Test hook: damages the KV of a request that has arrived (plant_kv_fault()).
std::unique_ptr<KvHandoff> make_decode_handoff(schedule::Scheduler& scheduler,
                                               const transfer::DecodeSideOptions& options,
                                               std::function<void()> copy_kv);

}  // namespace aerie::engine
