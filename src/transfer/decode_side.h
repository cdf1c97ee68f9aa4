// The decode side of the KV transfer (push): one for each decode replica. Offers reserved blocks,
// lets in only what is written into a live reservation, tells when a request has arrived whole.
// The contract stands in docs/contracts.md (KV transfer).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/fabric.h"
#include "request/request.h"
#include "transfer/layout.h"

namespace aerie::transfer {

struct DecodeSideOptions {
    int replica = 0;                         // among the decode replicas
    comm::Fabric* fabric = nullptr;
    std::vector<comm::Destination> prefill;  // [prefill replicas]: where each leader listens
    std::vector<Pool> pools;                 // [cp] of this replica
    std::function<void()> notify;            // an event is there; called on any thread
};

struct DecodeEvent {
    enum class Kind {
        kAnnounced,  // a prefill replica will start it soon: reserve blocks, then offer()
        kReady,      // all KV is here: `first` is its first token of this attempt
        kCancelled,  // the prefill side gave it up, or is gone: `why`
        kReleased,   // after cancel(): nothing can write into its blocks any more: free them
    };
    Kind kind;
    RequestId id = 0;
    uint32_t attempt = 0;
    int prefill_replica = 0;
    uint32_t epoch = 0;  // kAnnounced: of the prefill host
    int num_tokens = 0;  // kAnnounced
    TokenOut first;
    std::string why;
};

class DecodeSide {
  public:
    virtual ~DecodeSide() = default;

    // Leader thread.
    virtual std::vector<DecodeEvent> poll() = 0;
    // Block j of the prompt may be written to blocks[j] of pool j mod cp, for num_tokens tokens.
    virtual void offer(RequestId id, uint32_t attempt, int prefill_replica, int num_tokens,
                       const std::vector<int32_t>& blocks) = 0;
    // After kReady: lets the prefill side free its blocks, and ends the reservation.
    virtual void acknowledge(RequestId id) = 0;
    // Ends a reservation (offered, not ready) and tells the prefill side; kReleased follows, at once
    // or when the write under way has ended. No reservation: only the prefill side is told.
    virtual void cancel(RequestId id, uint32_t attempt, int prefill_replica,
                        const std::string& why) = 0;
    // Sends a request back to a prefill replica. Its prompt holds num_output tokens of output.
    virtual Status retract(const Request& request, uint32_t attempt, int num_output) = 0;
};

std::unique_ptr<DecodeSide> make_decode_side(DecodeSideOptions options);

}  // namespace aerie::transfer
