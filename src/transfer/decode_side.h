// The decode side of the KV transfer: one for each decode replica. Offers reserved blocks for the
// prefill side to write into (push), or reads them out of the prefill side's blocks itself (pull);
// tells when a request's KV is there. The contract stands in docs/contracts.md (KV transfer).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "comm/fabric.h"
#include "metrics/components.h"
#include "request/request.h"
#include "transfer/layout.h"

namespace aerie::transfer {

struct DecodeSideOptions {
    int replica = 0;                         // among the decode replicas
    comm::Fabric* fabric = nullptr;
    std::vector<comm::Destination> prefill;  // [prefill replicas]: where each leader listens
    std::vector<Pool> pools;                 // [cp] of this replica
    int vocab_size = 0;                      // token ids of peers are below it
    std::function<void()> notify;            // an event is there; called on any thread
    metrics::AttentionMetrics metrics;
};

struct DecodeEvent {
    enum class Kind {
        kAnnounced,    // a prefill replica will start it soon, or has computed it already: reserve
                       // blocks, then offer(). May come twice of one attempt
        kReady,        // all KV is here: `first` is its first token of this attempt
        kCancelled,    // the prefill side gave it up, or is gone: `why`. cancel() is the answer
        kLeaseRanOut,  // its KV is gone from the prefill side; nothing touches its blocks any more
        kReleased,     // after cancel(): nothing can write into its blocks any more: free them
    };
    Kind kind;
    RequestId id = 0;
    uint32_t attempt = 0;
    int prefill_replica = 0;
    uint32_t epoch = 0;   // kAnnounced: of the prefill host
    bool pulled = false;  // kAnnounced: it is computed, and leased
    TokenOut first;
    std::string why;
};

class DecodeSide {
  public:
    virtual ~DecodeSide() = default;

    // Leader thread.
    virtual std::vector<DecodeEvent> poll() = 0;
    // The answer to kAnnounced. Block j of the prompt may be written to blocks[j] of pool j mod cp,
    // for num_tokens tokens. The first num_matched of them, whole pages, are there already, in blocks
    // that others read too: nothing is written to these.
    virtual void offer(const DecodeEvent& announced, int num_tokens, int num_matched,
                       std::span<const int32_t> blocks) = 0;
    // After kReady: lets the prefill side free its blocks, and ends the reservation.
    virtual void acknowledge(RequestId id) = 0;
    // Ends an attempt and tells the prefill side. Where it holds an offer, kReleased follows, at once
    // or when nothing writes into its blocks any more.
    virtual void cancel(RequestId id, uint32_t attempt, int prefill_replica, const std::string& why) = 0;
    // Sends a request back to a prefill replica. Its prompt holds num_output tokens of output.
    virtual Status retract(const Request& request, uint32_t attempt, int num_output) = 0;
};

std::unique_ptr<DecodeSide> make_decode_side(DecodeSideOptions options);

}  // namespace aerie::transfer
