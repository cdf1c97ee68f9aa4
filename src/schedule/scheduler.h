// Scheduler: the requests of one attention replica, its KV blocks, and what the next step computes.
// No clock, no device, no lock: the leader's thread only. The same calls give the same plans.
//
// A plan may be made while the step before it runs: positions and counts are known then, token
// values are not needed. Steps end in the order of their plans. A block is free for others only
// when every step that may use it has ended, and transfer has let go of it.
//
// Order: retracted requests first, then as the policy says (policy.h). The first that does not fit
// stops those behind it; on a prefill replica those with an offer pass the ones without. One whose
// beginning another is computing lets others pass until that is in the prefix cache. A request is
// overtaken by at most kMaxOvertaken + max_running_requests that came after it, so it starts when
// those, and all before it, have ended or been planned; each start gains at least one token,
// however often it is retracted. So none waits forever.
//
// Prefix cache: a request starts with the blocks of its longest cached prefix; what it computes is
// in the cache from the end of each chunk, its output when it ends or is retracted. Blocks that
// only the cache holds count as free everywhere here: they are evicted on demand.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "cache/kv_blocks.h"
#include "cache/prefix_cache.h"
#include "request/request.h"
#include "schedule/counts.h"
#include "schedule/new_token_ratio.h"
#include "schedule/plan.h"
#include "schedule/policy.h"
#include "schedule/sequence.h"

namespace aerie::schedule {

enum class Flavour : uint8_t { kUnified, kPrefill, kDecode };

struct SchedulerOptions {
    Flavour flavour = Flavour::kUnified;
    cache::KvBlocksOptions kv;
    int max_running_requests = 256;   // of this replica
    int chunked_prefill_size = 8192;  // new tokens a step, a multiple of page_size; -1: off
    int max_prefill_tokens = 16384;   // new tokens a step with chunking off; one prompt may be more
    // Unified, and the tails of a decode replica: a step with chunked_prefill_size rows at most
    // computes prompts beside the running requests' next tokens. Off, or where these leave less
    // than a page of it: steps of prompts come first. Plays no part with chunking off.
    bool mixed_chunks = false;
    bool prefix_cache = false;
    PolicyOptions policy;  // unified, prefill; a decode replica takes them as they are announced
    double schedule_conservativeness = 1.0;
    int decode_reserve = 512;  // decode: tokens of growth of each request that offers keep free
    // Tokens that a request may have, where another replica that it may go to holds less; 0: none.
    int64_t max_request_tokens = 0;
    // MTP: the most that Sequence::drafts holds. Where it is not 0 a plan is empty while a step
    // runs, because its gain is not known.
    int num_drafts = 0;
    int prompt_logprob_rows = 256;  // of a step, a page at least: bounds the logits that prompts want
    std::vector<int32_t> eos_ids;
};

class Scheduler {
  public:
    explicit Scheduler(const SchedulerOptions& options);
    ~Scheduler();
    Scheduler(const Scheduler&) = delete;
    Scheduler& operator=(const Scheduler&) = delete;

    // Every flavour. A request that comes again to a prefill replica, as attempt 2 or later, goes
    // first; its output is the prompt's last `num_output` tokens; sampling is as the client sent it. (A decode replica keeps
    // what it retracted; it is announced() again.) The error, for the client, says why the request
    // can never fit, with the numbers; a known id is an error too.
    Status add(const Request& request, int num_output = 0, uint32_t attempt = 1);
    // Its tokens are not wanted any more; unknown ids are ignored. Steps that are planned keep it.
    // On a prefill or decode replica release() must follow where is_held().
    void abort(RequestId id);

    // The next step. Empty where nothing can be planned now.
    Plan plan();
    // The step of `plan` has ended. `advances`: one for each entry with `sample`, without those
    // aborted since. Returns what the sequences have gained, in the order of the entries; after a
    // stop token the rest of an advance is dropped. Sequences that ended before are left out. Those
    // of a step that failed are to be aborted before.
    std::vector<TokenOut> on_result(const Plan& plan, std::span<const Advance> advances);

    // Prefill: requests to announce to their decode replicas now: retracted ones, and, a decode
    // replica, the first ones up to two chunks of work. Each is returned once.
    std::vector<RequestId> take_announcements();
    int cached_tokens(const Sequence& sequence) const;  // in the prefix cache now; not the last one
    // Unknown ids are ignored here and below. Prefill: the decode replica has made an offer.
    void may_start(RequestId id);
    // Prefill: the decode replica has acknowledged, or pushes of an aborted request have ended.
    // Decode: that of an aborted request writes no more. Frees the blocks of that attempt once no
    // step uses them.
    void release(RequestId id, uint32_t attempt = 1);
    // Transfer may still touch the blocks of this request; false for unknown ids.
    bool is_held(RequestId id) const;

    // Decode: the prefill replica has announced it: it queues for blocks, retracted ones in front.
    void announced(RequestId id);
    // Decode: the requests that have just got blocks for their KV (all positions of the prompt),
    // in queue order. Read the blocks with find(). The first num_cached positions are there
    // already: no push may touch their blocks.
    std::vector<RequestId> take_offers();
    // Decode: all KV is there. Returns the first token as what the sequence has gained, perhaps
    // already finished; an error where the id holds no offer (it was aborted). num_cached: of the
    // prompt's tokens, those that the prefill replica had in its prefix cache. mtp_hidden: as in
    // Sequence.
    Result<TokenOut> start_decode(RequestId id, int32_t first_token, int num_cached = 0,
                                  std::string mtp_hidden = {});
    // Decode: its KV is not to be had: its blocks are free. It keeps its place, to be announced()
    // again. An error where it waits neither for blocks nor for KV.
    Result<Retracted> lost(RequestId id);
    // Decode: one of take_offers() whose tokens behind num_cached are at most max_tail_tokens() is
    // not to be pushed but computed here: it is planned as a prefill, and goes on by itself. An
    // error where the id holds no offer, or the tail is longer.
    Status start_tail(RequestId id);
    int max_tail_tokens() const { return std::max(options_.chunked_prefill_size, 0); }

    // Copies between the tiers of the prefix cache that are to be made, in this order, after plan() and
    // take_offers(): before a step runs, and before an offer is told.
    std::vector<cache::KvCopy> take_copies();

    // Forgets every cached prefix; false, and nothing is changed, while requests are known.
    bool flush_cache();

    // Whether a sequence ends with its num_gained-th token from now, and why.
    FinishReason judge(const Sequence& sequence, int num_gained, int32_t token) const;

    const Sequence* find(RequestId id) const;  // nullptr: unknown, or ended
    Counts counts() const;                     // O(1)
    bool idle() const;  // no request is known and no step is running
    const cache::KvBlocks& kv() const { return kv_; }
    int64_t max_request_tokens() const;  // that one may have, prompt and output

  private:
    Sequence* get(RequestId id);
    bool step_runs() const { return planned_steps_ > ended_steps_; }
    void set_state(Sequence& sequence, State state);
    int num_in(State state) const { return num_in_state_[static_cast<size_t>(state)]; }

    // waiting_order.cc
    std::vector<Sequence*> waiting_order();
    void match_waiting();
    uint64_t beginning(const Sequence& sequence, int first, int end) const;
    std::unordered_set<uint64_t> beginnings_under_way() const;

    // plan_prefill.cc
    void plan_prefill(Plan& plan, int room, bool admits);
    bool admit(Plan& plan, Sequence& sequence, int& room, int64_t budget);
    int chunk_of(const Plan& plan, const Sequence& sequence, int end, int room) const;
    bool fits_alone(const Sequence& sequence) const;
    int64_t admission_budget() const;
    int64_t growth(const Sequence& sequence) const;
    void plan_chunk(Plan& plan, Sequence& sequence, int num_tokens);

    // plan_decode.cc
    bool plan_decode(Plan& plan);
    std::vector<Sequence*> decode_batch() const;
    int decode_width(const Sequence& sequence) const;
    int blocks_wanted(const Sequence& sequence) const;
    bool make_room(Plan& plan, std::vector<Sequence*>& batch);
    void retract(Plan& plan, Sequence& sequence);

    // handover.cc
    bool can_offer(Sequence& sequence, int64_t reserved) const;

    // cached_prefix.cc
    void take_cached_prefix(Sequence& sequence);
    void get_blocks(Sequence& sequence);
    void give_back(Sequence& sequence);
    void keep_prefix(Sequence& sequence);
    void drop_replaced(Sequence& sequence);

    TokenOut gain(Sequence& sequence, std::span<const int32_t> tokens);
    void enqueue(Sequence& sequence);
    void end(Sequence& sequence);
    void sweep();

    SchedulerOptions options_;
    cache::KvBlocks kv_;
    std::unique_ptr<cache::PrefixCache> cache_;  // null: turned off
    NewTokenRatio ratio_;
    std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
    std::vector<std::unique_ptr<Sequence>> ended_;  // until their blocks are free
    std::vector<Sequence*> queue_;    // waiting or queued: retracted first, then by order
    std::vector<Sequence*> running_;  // by their start
    std::vector<Sequence*> offered_;  // decode
    int num_in_state_[7] = {};        // [State]
    uint64_t matched_at_[2] = {~uint64_t{0}, 0};  // what the cache held when match_waiting() looked
    uint64_t next_order_ = 1;
    uint64_t planned_steps_ = 0;
    uint64_t ended_steps_ = 0;
    uint64_t num_retracted_ = 0;
    uint64_t num_device_hits_ = 0;
};

}  // namespace aerie::schedule
