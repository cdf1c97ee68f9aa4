// Scheduler: the requests of one attention replica, its KV blocks, and what the next step computes.
// No clock, no device, no lock: the leader's thread only. The same calls give the same plans.
//
// A plan may be made while the step before it runs: positions and counts are known then, token
// values are not needed. Steps end in the order of their plans. A block is free for others only
// when every step that may use it has ended, and transfer has let go of it.
//
// Order is first come, first served; retracted requests come first. Nobody overtakes the head of
// the queue, except, on a prefill replica, those with an offer the ones without. So a waiting
// request starts when all before it have ended or been planned, and none waits forever: each start
// gains at least one token, however often it is retracted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "cache/kv_blocks.h"
#include "request/request.h"
#include "schedule/new_token_ratio.h"
#include "schedule/plan.h"
#include "schedule/sequence.h"

namespace aerie::schedule {

enum class Flavour : uint8_t { kUnified, kPrefill, kDecode };

struct SchedulerOptions {
    Flavour flavour = Flavour::kUnified;
    cache::KvBlocksOptions kv;
    int max_running_requests = 256;   // of this replica
    int chunked_prefill_size = 8192;  // new tokens a step, a multiple of page_size; -1: off
    int max_prefill_tokens = 16384;   // new tokens a step with chunking off; one prompt may be more
    double schedule_conservativeness = 1.0;
    int decode_reserve = 512;  // decode: tokens of growth of each request that offers keep free
    int num_drafts = 0;  // MTP: positions a decode step computes beside the first. With drafts a
                         // plan is empty while a step runs, because its gain is not known
    std::vector<int32_t> eos_ids;
};

struct Counts {
    int num_running = 0;
    int num_waiting = 0;    // unified, prefill: the queue; decode: expected and queued
    int num_queued = 0;     // decode: announced, waiting for blocks
    int num_offered = 0;    // decode: waiting for KV
    int num_prefilled = 0;  // prefill: waiting for the acknowledgement
    int64_t used_tokens = 0;
    int64_t capacity = 0;
    int64_t free_tokens = 0;
    uint64_t num_retracted = 0;  // since the start
    double new_token_ratio = 0;
};

class Scheduler {
  public:
    explicit Scheduler(const SchedulerOptions& options);
    ~Scheduler();
    Scheduler(const Scheduler&) = delete;
    Scheduler& operator=(const Scheduler&) = delete;

    // Every flavour. A request that comes back to a prefill replica after a retraction has its
    // output in the prompt, as its last `num_output` tokens; sampling is as the client sent it. (A
    // decode replica keeps what it retracted; it is announced() again.) The error, for the client,
    // says why the request can never fit, with the numbers; a known id is an error too.
    Status add(const Request& request, int num_output = 0);
    // Its tokens are not wanted any more; unknown ids are ignored. Steps that are planned keep it.
    // On a prefill or decode replica release() must follow where is_held().
    void abort(RequestId id);

    // The next step. Empty where nothing can be planned now.
    Plan plan();
    // The step of `plan` has ended. `advances`: one for each entry with `sample`, without those
    // aborted since. Returns what the sequences have gained, in the order of the entries; after a
    // stop token the rest of an advance is dropped. Sequences that ended before are left out.
    std::vector<TokenOut> on_result(const Plan& plan, std::span<const Advance> advances);

    // Prefill: requests to announce to their decode replicas now: retracted ones, and, a decode
    // replica, the first ones up to two chunks of work. Each is returned once.
    std::vector<RequestId> take_announcements();
    // Prefill: the decode replica has made an offer. Unknown ids are ignored.
    void may_start(RequestId id);
    // Prefill: the decode replica has acknowledged, or pushes of an aborted request have ended.
    // Decode: the prefill replica of an aborted request writes no more. Frees the blocks once no
    // step uses them. Unknown ids are ignored.
    void release(RequestId id);
    // Transfer may still touch the blocks of this request; false for unknown ids.
    bool is_held(RequestId id) const;

    // Decode: the prefill replica has announced it: it queues for blocks, behind those announced
    // before, retracted ones in front. Unknown ids are ignored.
    void announced(RequestId id);
    // Decode: the requests that have just got blocks for their KV (all positions of the prompt),
    // in queue order. Read the blocks with find().
    std::vector<RequestId> take_offers();
    // Decode: all KV is there. Returns the first token as what the sequence has gained, perhaps
    // already finished; an error where the id holds no offer (it was aborted).
    Result<TokenOut> start_decode(RequestId id, int32_t first_token);

    const Sequence* find(RequestId id) const;  // nullptr: unknown, or ended
    Counts counts() const;
    bool idle() const;  // no request is known and no step is running
    const cache::KvBlocks& kv() const { return kv_; }
    // Tokens that the longest request may have, prompt and output.
    int64_t max_request_tokens() const { return kv_.capacity() - kv_.page_size(); }

  private:
    Sequence* get(RequestId id);
    bool step_runs() const { return planned_steps_ > ended_steps_; }

    // plan_prefill.cc
    void plan_prefill(Plan& plan);
    int64_t admission_budget() const;
    int64_t growth(const Sequence& sequence) const;
    void plan_chunk(Plan& plan, Sequence& sequence, int num_tokens);

    // plan_decode.cc
    void plan_decode(Plan& plan);
    int decode_width(const Sequence& sequence) const;
    int blocks_wanted(const Sequence& sequence) const;
    bool make_room(Plan& plan, std::vector<Sequence*>& batch);
    void retract(Plan& plan, Sequence& sequence);

    // handover.cc
    bool can_offer(const Sequence& sequence) const;

    TokenOut gain(Sequence& sequence, std::span<const int32_t> tokens);
    FinishReason judge(const Sequence& sequence) const;
    void enqueue(Sequence& sequence);
    void end(Sequence& sequence);
    void sweep();

    SchedulerOptions options_;
    cache::KvBlocks kv_;
    NewTokenRatio ratio_;
    std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
    std::vector<std::unique_ptr<Sequence>> ended_;  // until their blocks are free
    std::vector<Sequence*> queue_;    // waiting or queued: retracted first, then by order
    std::vector<Sequence*> running_;  // by their start
    uint64_t next_order_ = 1;
    uint64_t planned_steps_ = 0;
    uint64_t ended_steps_ = 0;
    uint64_t num_retracted_ = 0;
};

}  // namespace aerie::schedule
