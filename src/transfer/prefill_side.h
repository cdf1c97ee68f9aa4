// The prefill side of the KV transfer (push): one for each prefill replica. Announces requests,
// takes the offers of decode replicas, pushes each layer of each chunk into the offered blocks.
// The contract stands in docs/contracts.md (KV transfer).
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

struct PrefillSideOptions {
    int replica = 0;                        // among the prefill replicas
    comm::Fabric* fabric = nullptr;
    std::vector<comm::Destination> decode;  // [decode replicas]: where each leader listens
    std::vector<Pool> pools;                // [cp] of this replica
    int decode_cp = 1;
    std::function<void()> notify;           // an event is there; called on any thread
    metrics::AttentionMetrics metrics;
};

// What the decode side, or its death, has told.
struct PrefillEvent {
    enum class Kind {
        kOffered,    // blocks are reserved: the request may start
        kAcked,      // all has arrived: its blocks may be freed
        kCancelled,  // the decode side gave it up, or is gone: `why`
        kRetracted,  // `request` comes again as a prompt; its last num_output tokens were output
    };
    Kind kind;
    RequestId id = 0;
    uint32_t attempt = 0;
    std::string why;
    Request request;
    int num_output = 0;
};

// A chunk of one request whose KV of a layer is complete.
struct PushChunk {
    RequestId id;
    int first_token;                  // at a page border
    int num_tokens;                   // ends at a page border, or at the prompt's end
    std::span<const int32_t> blocks;  // of the whole sequence, by global block number
};

class PrefillSide {
  public:
    virtual ~PrefillSide() = default;

    // Leader thread.
    virtual std::vector<PrefillEvent> poll() = 0;
    virtual void announce(RequestId id, uint32_t attempt, int decode_replica, int num_tokens) = 0;
    // Everything has been pushed; `first` travels with it.
    virtual void done(RequestId id, const TokenOut& first) = 0;
    // Ends the attempt, if one was announced, and tells the other side. Nothing more is pushed.
    virtual void cancel(RequestId id, uint32_t attempt, int decode_replica,
                        const std::string& why) = 0;
    // No write out of this request's blocks is under way. True for an unknown request.
    virtual bool quiet(RequestId id) const = 0;
    // Forgets a request that was acked or cancelled and is quiet.
    virtual void forget(RequestId id) = 0;

    // Pushes what context-parallel rank `cp_rank` owns of these chunks. Any rank's thread; does not
    // wait for the peer. The blocks must stay as they are until quiet().
    virtual void push(int cp_rank, int layer, std::span<const PushChunk> chunks) = 0;
};

std::unique_ptr<PrefillSide> make_prefill_side(PrefillSideOptions options);

}  // namespace aerie::transfer
