// What decode_side.cc (the attempts), decode_read.cc (the reads) and decode_messages.cc (what the
// prefill side says) share.
#pragma once

#include <optional>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "transfer/decode_side.h"
#include "transfer/pool_regions.h"
#include "transfer/side.h"

namespace aerie::transfer {

// One prefill attempt of a request. Lives from the offer, or from when it can be read, until it is
// acknowledged, released or lost.
struct Arriving {
    RequestId id = 0;
    uint32_t attempt = 0;
    int prefill_replica = 0;
    int from_node = 0;
    uint32_t from_epoch = 0;
    int num_tokens = 0;
    int first_block = 0;          // those before it are there already
    std::vector<int32_t> blocks;  // of the whole prompt; empty: not offered
    std::optional<proto::KvDone> done;
    bool pulled = false;     // `done` has a source: this side reads
    bool ready = false;
    bool stopped = false;    // the prefill side writes no more, or is fenced
    bool cancelled = false;  // by the leader
    bool lost = false;       // the lease ran out

    int reading = 0;         // gets under way, and one while they are begun
    bool all_begun = false;  // a get of each layer has been
    std::string failure;     // of a get
    bool failure_told = false;
    bool asked = false;      // the prefill side has been asked to confirm what was read
    TimePoint read_begin{};
    size_t bytes = 0;
};

// The gets of a read: from each pool of the peer, as offsets in layer 0.
struct PreparedGet {
    RemotePool pool;
    int local_cp = 0;
    std::vector<comm::Piece> pieces;
};

class DecodeSideImpl final : public DecodeSide, Side<DecodeEvent> {
  public:
    explicit DecodeSideImpl(DecodeSideOptions options);
    ~DecodeSideImpl() override;

    std::vector<DecodeEvent> poll() override { return take_events(); }
    void offer(const DecodeEvent& announced, int num_tokens, int num_matched,
               std::span<const int32_t> blocks) override;
    void acknowledge(RequestId id) override;
    void cancel(RequestId id, uint32_t attempt, int prefill_replica, const std::string& why) override;
    Status retract(const Request& request, uint32_t attempt, int num_output) override;

  private:
    // All of these with the lock held.
    std::shared_ptr<Arriving> find(RequestId id, uint32_t attempt) const;
    void settle(Arriving& arriving, Locked& locked);
    void release(Arriving& arriving, Locked& locked);
    void lose_peer(Arriving& arriving, Locked& locked);

    void peer_changed(int node, uint32_t epoch) override;

    // Courier.
    TimePoint attend() override;
    void handle(const Letter& letter);
    void take_done(const Letter& letter, Locked& locked);
    std::string fault_in(const proto::KvDone& done, const Arriving& arriving) const;
    void take_cancel(const Letter& letter, Locked& locked);
    void take_confirm(const Letter& letter, Locked& locked);
    void read(const std::shared_ptr<Arriving>& arriving);
    Result<std::vector<PreparedGet>> prepare_read(const Arriving& arriving);
    bool read_layer(Arriving& arriving, int layer, const std::vector<PreparedGet>& gets);
    void read_ended(Arriving& arriving, const Status& status);

    const DecodeSideOptions options_;
    PoolRegions regions_;
    std::unordered_map<RequestId, std::shared_ptr<Arriving>> arriving_;
    std::vector<std::shared_ptr<Arriving>> to_read_;  // for the courier
};

DecodeEvent event(DecodeEvent::Kind kind, const Arriving& arriving, std::string why = {});

}  // namespace aerie::transfer
