// What prefill_side.cc (the attempts), prefill_push.cc (the writes) and prefill_messages.cc (what the
// decode side says) share.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "transfer/kept_cancels.h"
#include "transfer/pool_regions.h"
#include "transfer/prefill_side.h"
#include "transfer/side.h"

namespace aerie::transfer {

// One attempt to bring a request's KV to a decode replica. It ends by the decode side's word, by the
// leader's, by a death or by the clock; then it stays until no write of its is under way.
struct Outgoing {
    RequestId id = 0;
    uint32_t attempt = 0;
    comm::Destination to{};
    uint32_t to_epoch = 0;
    int num_tokens = 0;
    Mode mode = Mode::kPush;
    std::optional<RemoteBlocks> target;    // push: the offer
    int writing = 0;                       // puts under way
    size_t bytes = 0;                      // handed to the fabric, not counted yet
    TimePoint first_push{};
    std::optional<proto::KvMessage> done;  // push: to be sent when nothing is being written
    bool done_sent = false;
    bool leased = false;
    TimePoint lease_end{};
    bool ended = false;                        // nothing more is written
    std::optional<proto::KvMessage> farewell;  // to be sent when nothing is being written
};

// One chunk's writes into one pool of the peer.
struct PreparedPut {
    std::shared_ptr<Outgoing> outgoing;
    RemotePool pool;
    std::vector<comm::Piece> pieces;  // of layer 0
    size_t bytes = 0;
};

class PrefillSideImpl final : public PrefillSide, Side<PrefillEvent> {
  public:
    explicit PrefillSideImpl(PrefillSideOptions options);
    ~PrefillSideImpl() override;

    std::vector<PrefillEvent> poll() override { return take_events(); }
    void begin(RequestId id, uint32_t attempt, int decode_replica, int num_tokens, Mode mode) override;
    bool pull_instead(RequestId id) override;
    void prepare(std::span<const PushChunk> chunks) override;
    void done(RequestId id, const TokenOut& first, std::span<const int32_t> blocks) override;
    void cancel(RequestId id, uint32_t attempt, int decode_replica, const std::string& why) override;
    bool end_newest_lease(const std::string& why) override;
    void push(int cp_rank, int layer) override;

  private:
    using Key = std::pair<RequestId, uint32_t>;

    // All of these with the lock held.
    std::shared_ptr<Outgoing> newest(RequestId id) const;
    void end(Outgoing& outgoing, const std::string& why, Locked& locked);
    void end_with(Outgoing& outgoing, proto::KvMessage farewell, const std::string& why, Locked& locked);
    void end_lease(Outgoing& outgoing, const std::string& why, Locked& locked);
    void settle(Outgoing& outgoing, Locked& locked);
    void keep(const Outgoing& outgoing, proto::KvMessage cancel);
    void leave(Outgoing& outgoing);
    void count_bytes(Outgoing& outgoing);
    void acked(Outgoing& outgoing, Locked& locked);

    void prepare_chunk(const PushChunk& chunk, const std::shared_ptr<Outgoing>& outgoing);
    void written(Outgoing& outgoing, const Status& status);
    void peer_changed(int node, uint32_t epoch) override;

    // Courier.
    TimePoint attend() override;
    TimePoint end_late_leases();
    void handle(const Letter& letter);
    void take_offer(const Letter& letter);
    void answer_read(const Letter& letter, Locked& locked);
    void take_back(const Letter& letter, Locked& locked);
    // The attempt that a message is about, where it came from the life that the attempt is for.
    template <typename Message>
    std::shared_ptr<Outgoing> find(const Message& message, const Letter& letter) const {
        const auto found = outgoing_.find({message.id(), message.attempt()});
        if (found == outgoing_.end() || found->second->to_epoch != letter.epoch) return nullptr;
        return found->second;
    }

    const PrefillSideOptions options_;
    PoolRegions regions_;
    std::map<Key, std::shared_ptr<Outgoing>> outgoing_;
    KeptCancels kept_;
    // Changed by the leader while no step runs, then each rank's belongs to its thread.
    std::vector<std::vector<PreparedPut>> prepared_;  // [cp]
    std::vector<std::vector<comm::Piece>> scratch_;   // [cp]
};

proto::KvMessage cancel_message(RequestId id, uint32_t attempt, const std::string& why);

}  // namespace aerie::transfer
