// The prefill side of the KV transfer: one for each prefill replica. Announces requests, takes the
// offers of decode replicas and writes each layer of each chunk into the offered blocks (push); or
// keeps a request's blocks under a lease until its decode replica has read them (pull). The contract
// stands in docs/contracts.md (KV transfer).
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
#include "transfer/policy.h"

namespace aerie::transfer {

struct PrefillSideOptions {
    int replica = 0;                        // among the prefill replicas
    comm::Fabric* fabric = nullptr;
    std::vector<comm::Destination> decode;  // [decode replicas]: where each leader listens
    std::vector<Pool> pools;                // [cp] of this replica
    int vocab_size = 0;                     // token ids of peers are below it
    double lease_s = 30;                    // of a first attempt; the n-th has n times as long
    std::function<void()> notify;           // an event is there; called on any thread
    metrics::AttentionMetrics metrics;
};

// What the decode side, its death or the clock has told.
struct PrefillEvent {
    enum class Kind {
        kOffered,    // push: blocks are reserved, the request may start
        kAcked,      // all has arrived: the request leaves
        kCancelled,  // the decode side gave it up, or is gone, or the lease ran out: `why`
        kReleased,   // after cancel() or kCancelled: nothing reads its blocks: they may be freed
        kRetracted,  // `request` comes again as a prompt; its last num_output tokens were output
    };
    Kind kind;
    RequestId id = 0;
    uint32_t attempt = 0;
    std::string why;
    Request request;
    int num_output = 0;
};

// A chunk of one request that the next step computes. The first chunk of a request begins at 0, so
// that what was found in the cache is pushed too.
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
    // Begins an attempt. kPush asks the decode replica for blocks, kPull tells it nothing yet.
    virtual void begin(RequestId id, uint32_t attempt, int decode_replica, int num_tokens, Mode mode) = 0;
    // Late binding: an attempt that waits for an offer will be pulled. False where the offer has
    // come, or the attempt has ended.
    virtual bool pull_instead(RequestId id) = 0;
    // What the next step's push() calls are about; to be called before it begins.
    virtual void prepare(std::span<const PushChunk> chunks) = 0;
    // The last chunk has been computed and handed to push(). `first` is told with the KV: once all
    // of it is written, or at once, with the blocks to read and a lease on them.
    virtual void done(RequestId id, const TokenOut& first, std::span<const int32_t> blocks) = 0;
    // Ends the attempt, if one was begun, and tells the other side. Nothing more is pushed;
    // kReleased follows, perhaps at once.
    virtual void cancel(RequestId id, uint32_t attempt, int decode_replica, const std::string& why) = 0;
    // Ends the newest lease before its time, so that what waits for its blocks can go on. False
    // where there is none.
    virtual bool end_newest_lease(const std::string& why) = 0;

    // Pushes what context-parallel rank `cp_rank` owns of the prepared chunks. Any rank's thread;
    // does not wait for the peer. The blocks must stay as they are until kAcked or kReleased.
    virtual void push(int cp_rank, int layer) = 0;
};

std::unique_ptr<PrefillSide> make_prefill_side(PrefillSideOptions options);

}  // namespace aerie::transfer
