// Which way a request's KV takes from prefill to decode: pushed into blocks that decode has offered,
// or pulled by decode out of blocks that prefill keeps. A pure function of what is known.
#pragma once

#include <cstdint>

namespace aerie::transfer {

enum class Mode : uint8_t { kPush, kPull };

enum class Policy : uint8_t { kActive, kPassive, kActivePassive };  // kv_transfer

// Why; the order is that of metrics::kKvPolicyReasons.
enum class Reason : uint8_t {
    kConfigured,      // kv_transfer allows one way only
    kDefault,         // active_passive: nothing speaks against a push
    kLateBinding,     // no offer has come, and prefill has nothing else to do
    kPromptCached,    // nothing is left to compute that a push could overlap with
    kPrefixHeld,      // decode has retracted it, and prefill still holds what it computed before
    kCount
};

struct Choice {
    Mode mode;
    Reason reason;
    bool operator==(const Choice&) const = default;
};

// What a prefill replica knows of a request that it has not begun.
struct TransferFacts {
    int num_tokens = 0;      // of the prompt, output from before a retraction included
    int num_cached = 0;      // of these, in prefill's cache: whole pages, never the last token
    int page_size = 1;
    int num_before = 0;      // retracted: tokens of the prompt as it was first computed; 0: it is new
    double waited_s = 0;     // since it was announced without an offer coming
    bool prefill_idle = false;
};

// An announced request binds late after that long.
constexpr double kOfferWaitSeconds = 0.1;

Choice choose(Policy policy, const TransferFacts& facts);

}  // namespace aerie::transfer
