// Sequence: a request inside a replica. Owned by the Scheduler; others read it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "request/request.h"
#include "schedule/draft_length.h"

namespace aerie::schedule {

enum class State : uint8_t {
    kWaiting,    // unified, prefill: in the queue
    kRunning,    // has blocks and is planned
    kPrefilled,  // prefill: computed, its blocks are held until release()
    kExpected,   // decode: known, not announced by its prefill replica
    kQueued,     // decode: waits for blocks
    kOffered,    // decode: has blocks, its KV is on the way
    kEnded,      // finished or aborted; its blocks may be in use still
};

struct Sequence {
    RequestId id = 0;
    SamplingParams sampling;
    bool hash_logits = false;
    int decode_replica = 0;
    int priority = 0;
    uint32_t attempt = 1;  // prefill: which of the request's prefills
    std::string cache_salt;

    // Prompt, then output: position p holds tokens[p]. While a step that samples for it runs, the
    // newest ones are not here yet (num_in_flight).
    std::vector<int32_t> tokens;
    int num_prompt = 0;    // of the request as the client sent it; a retraction does not change it
    int output_limit = 0;  // max_new_tokens, or less where the KV cache holds less

    int num_planned = 0;    // positions whose KV is present or comes with a planned step
    int num_computed = 0;   // positions whose KV is present
    int prefill_end = 0;    // those below it are computed as prefill; set when it starts
    int num_in_flight = 0;  // tokens that running or planned steps will sample
    // Of the positions, those that the prefix cache held when it got its blocks: whole pages, less
    // than all tokens. Their blocks, the first ones of `blocks`, are shared: nobody writes them.
    // The first chunk of a prefill begins there.
    int num_cached = 0;
    int cached_prompt = 0;  // tokens of the prompt that were never computed: for the client

    std::vector<int32_t> blocks;  // block b: positions [b·page, (b+1)·page), on cp rank b mod cp
    // Blocks of its own whose pages the prefix cache had got from another sequence meanwhile; held
    // until step `replaced_step` has ended, on a prefill replica as long as `blocks`.
    std::vector<std::pair<int, int32_t>> replaced;  // cp rank, block
    uint64_t replaced_step = 0;

    // MTP. The leader fills in what is drafted while a step ends.
    std::vector<int32_t> drafts;  // expected behind `tokens`; the next decode step checks them
    // Compute type [hidden_size]: the final hidden row of the newest computed position, until the MTP
    // layer has used it; empty: not at hand.
    std::string mtp_hidden;
    DraftLength draft_length;
    int num_decode_steps = 0;

    State state = State::kWaiting;
    bool retracted = false;  // comes before those that never ran
    bool may_start = true;   // prefill: its decode replica has made an offer
    bool announced = false;  // prefill: the offer was asked for; decode: the announcement came
    bool keeps_order = false;  // decode: announced before, its KV was lost
    bool held = false;       // transfer may read or write its blocks: not to be freed
    uint64_t order = 0;      // of arrival; of announcement on decode
    int num_overtaken = 0;   // by later ones, while it waited
    int num_matched = -1;    // of its tokens, those in the prefix cache when the policy last looked
    int32_t match_page = -1;  // the last page of that match
    uint64_t last_step = 0;  // newest planned step that uses it; 0: none

    // The first position whose logits are wanted for the prompt's own logprobs.
    int first_prompt_logit() const {
        const int from = sampling.prompt_logprobs_from;
        return from < 0 || num_output() > 0 ? std::numeric_limits<int>::max() : std::max(from - 1, 0);
    }
    // The first of its tokens, those that may be found in the prefix cache: all but the last, whose
    // logits are needed, and none whose logits the prompt's logprobs need.
    std::span<const int32_t> matchable() const {
        const size_t count = std::min<size_t>(tokens.size() - 1, first_prompt_logit());
        return std::span(tokens).first(count);
    }
    int num_output() const { return static_cast<int>(tokens.size()) - num_prompt; }
    int num_tokens() const { return static_cast<int>(tokens.size()) + num_in_flight; }
    // Tokens it may still gain beside those in flight.
    int num_remaining() const { return output_limit - num_output() - num_in_flight; }
    bool prefilling() const { return num_planned < prefill_end; }
};

}  // namespace aerie::schedule
