#include "transfer/prefill_side.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "base/clock.h"
#include "base/log.h"
#include "comm/peer_watch.h"
#include "comm/port_numbers.h"
#include "request/convert.h"
#include "transfer/control_message.h"

namespace aerie::transfer {
namespace {

// One attempt to bring a request's KV to a decode replica.
struct Outgoing {
    uint32_t attempt = 0;
    int decode_replica = 0;
    comm::Destination to{};
    uint32_t to_epoch = 0;
    int num_tokens = 0;
    std::vector<int32_t> offered;          // [blocks of the prompt]; empty: no offer yet
    std::atomic<bool> ended{false};        // acked or cancelled: nothing more is pushed
    std::atomic<uint64_t> num_pushes{0};
    std::atomic<int> pending{0};           // pushes whose source is still being read
    TimePoint first_push{};
};

class PushingPrefillSide final : public PrefillSide, comm::Receiver {
  public:
    explicit PushingPrefillSide(PrefillSideOptions options)
        : options_(std::move(options)), sender_(options_.fabric, options_.replica) {
        watch_.emplace(*options_.fabric,
                       [this](int node, uint32_t epoch) { peer_changed(node, epoch); });
        options_.fabric->open(comm::kv_port(false, options_.replica), this);
    }
    // Waits for pushes under way: they read the pools and count down here. The fabric counts down
    // also where the peer has died, so this ends.
    ~PushingPrefillSide() override {
        options_.fabric->close(comm::kv_port(false, options_.replica));
        for (const auto& [id, outgoing] : outgoing_) replaced_.push_back(outgoing);
        for (const auto& outgoing : replaced_) {
            while (outgoing->pending.load(std::memory_order_acquire) != 0) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        }
    }

    std::vector<PrefillEvent> poll() override {
        std::lock_guard lock(mutex_);
        return std::exchange(events_, {});
    }

    void announce(RequestId id, uint32_t attempt, int decode_replica, int num_tokens) override {
        const comm::Destination to = options_.decode.at(decode_replica);
        auto outgoing = std::make_shared<Outgoing>();
        outgoing->attempt = attempt;
        outgoing->decode_replica = decode_replica;
        outgoing->to = to;
        outgoing->to_epoch = options_.fabric->peer_epoch(to.node);
        outgoing->num_tokens = num_tokens;
        {
            std::lock_guard lock(mutex_);
            std::shared_ptr<Outgoing>& place = outgoing_[id];
            if (place != nullptr) replaced_.push_back(std::move(place));
            place = std::move(outgoing);
            std::erase_if(replaced_, [](const auto& old) { return old->pending == 0; });
        }
        proto::KvMessage message;
        auto* announce = message.mutable_announce();
        announce->set_id(id);
        announce->set_attempt(attempt);
        announce->set_num_tokens(num_tokens);
        if (Status sent = sender_.send(to, message); !sent) {
            std::lock_guard lock(mutex_);
            end(id, fmt::format("the decode host node-{} cannot be reached: {}", to.node, sent.message()));
        }
    }

    void done(RequestId id, const TokenOut& first) override {
        const auto outgoing = find(id);
        if (outgoing == nullptr || outgoing->ended) return;
        proto::KvMessage message;
        auto* done = message.mutable_done();
        done->set_id(id);
        done->set_attempt(outgoing->attempt);
        done->set_num_pushes(outgoing->num_pushes);
        to_proto(first, *done->mutable_first());
        (void)sender_.send(outgoing->to, message);  // a dead peer is told by peer_changed()
        options_.metrics.active_transfers.add();
    }

    void cancel(RequestId id, uint32_t attempt, int decode_replica,
                const std::string& why) override {
        if (const auto outgoing = find(id)) outgoing->ended = true;
        proto::KvMessage message;
        auto* cancel = message.mutable_cancel();
        cancel->set_id(id);
        cancel->set_attempt(attempt);
        cancel->set_why(why);
        (void)sender_.send(options_.decode.at(decode_replica), message);
    }

    bool quiet(RequestId id) const override {
        const auto outgoing = find(id);
        return outgoing == nullptr || outgoing->pending.load(std::memory_order_acquire) == 0;
    }

    void forget(RequestId id) override {
        std::lock_guard lock(mutex_);
        outgoing_.erase(id);
    }

    void push(int cp_rank, int layer, std::span<const PushChunk> chunks) override {
        for (const PushChunk& chunk : chunks) {
            const auto outgoing = find(chunk.id);
            if (outgoing == nullptr || outgoing->ended || outgoing->offered.empty()) continue;
            push_chunk(cp_rank, layer, chunk, *outgoing);
        }
    }

  private:
    std::shared_ptr<Outgoing> find(RequestId id) const {
        std::lock_guard lock(mutex_);
        const auto it = outgoing_.find(id);
        return it == outgoing_.end() ? nullptr : it->second;
    }

    // Runs of blocks that lie side by side in both pools go as one message.
    void push_chunk(int cp_rank, int layer, const PushChunk& chunk, Outgoing& outgoing) {
        const Pool& pool = options_.pools.at(cp_rank);
        const int page = pool.page_size;
        const int cp = static_cast<int>(options_.pools.size());
        const int end_token = chunk.first_token + chunk.num_tokens;
        int block = chunk.first_token / page;
        while (block * page < end_token) {
            if (block % cp != cp_rank) {
                ++block;
                continue;
            }
            int last = block;
            while (cp == 1 && options_.decode_cp == 1 && (last + 1) * page < end_token &&
                   chunk.blocks[last + 1] == chunk.blocks[last] + 1 &&
                   outgoing.offered[last + 1] == outgoing.offered[last] + 1) {
                ++last;
            }
            const int tokens = std::min((last + 1) * page, end_token) - block * page;
            send_run(pool, layer, chunk, block, tokens, outgoing);
            block = last + 1;
        }
    }

    void send_run(const Pool& pool, int layer, const PushChunk& chunk, int block, int tokens,
                  Outgoing& outgoing) {
        const KvHeader header{.kind = MessageKind::kPush,
                              .replica = options_.replica,
                              .id = chunk.id,
                              .serial = 0,
                              .attempt = outgoing.attempt,
                              .layer = layer,
                              .first_block = block,
                              .num_tokens = tokens};
        const size_t bytes = tokens * pool.token_bytes;
        // Counted before it is sent: `done` must not tell fewer than have arrived.
        outgoing.num_pushes.fetch_add(1, std::memory_order_relaxed);
        const Status sent = options_.fabric->send(
            outgoing.to, {.header = &header,
                          .header_bytes = sizeof(header),
                          .payload = pool.layers[layer] + chunk.blocks[block] * pool.block_bytes(),
                          .payload_bytes = bytes,
                          .kind = comm::Payload::kOwned,
                          .pending = &outgoing.pending});
        if (!sent) return;  // the peer is gone: peer_changed() ends the attempt
        if (outgoing.to.node != options_.fabric->node()) {
            options_.metrics.kv_transfer_bytes_active.add(static_cast<double>(bytes));
        }
        if (layer == 0 && chunk.first_token == 0) outgoing.first_push = Clock::now();
    }

    // Ends an attempt from the other side, with the lock held.
    void end(RequestId id, const std::string& why) {
        const auto it = outgoing_.find(id);
        if (it == outgoing_.end() || it->second->ended) return;
        it->second->ended = true;
        events_.push_back({.kind = PrefillEvent::Kind::kCancelled,
                           .id = id,
                           .attempt = it->second->attempt,
                           .why = why,
                           .request = {}});
    }

    void peer_changed(int node, uint32_t epoch) {
        {
            std::lock_guard lock(mutex_);
            for (const auto& [id, outgoing] : outgoing_) {
                if (outgoing->to.node == node && outgoing->to_epoch != epoch) {
                    end(id, fmt::format("the decode host node-{} died", node));
                }
            }
        }
        options_.notify();
    }

    // comm::Receiver: control messages only.
    std::byte* accept(const comm::Incoming& message) override {
        const auto header = read_header(message);
        if (!header || header->kind != MessageKind::kControl) return nullptr;
        return receiver_.accept(message, *header);
    }
    void failed(const comm::Incoming& message) override {
        if (const auto header = read_header(message)) receiver_.failed(message, *header);
    }
    void delivered(const comm::Incoming& message, const std::byte* payload) override {
        const auto header = read_header(message);
        if (!header) return;
        const auto parsed = receiver_.delivered(message, *header, payload);
        if (!parsed) return;
        {
            std::lock_guard lock(mutex_);
            handle(*parsed);
        }
        options_.notify();
    }

    void handle(const proto::KvMessage& message) {
        if (message.has_retract()) {
            const int replica = message.retract().request().decode_replica();
            if (replica < 0 || replica >= static_cast<int>(options_.decode.size())) {
                log_error("KV message dropped: request {} is retracted by decode replica {} of {}",
                          message.retract().request().id(), replica, options_.decode.size());
                return;
            }
            events_.push_back({.kind = PrefillEvent::Kind::kRetracted,
                               .id = message.retract().request().id(),
                               .attempt = message.retract().attempt(),
                               .why = {},
                               .request = from_proto(message.retract().request()),
                               .num_output = message.retract().num_output()});
            return;
        }
        const RequestId id = message.has_offer() ? message.offer().id()
                             : message.has_ack() ? message.ack().id()
                                                 : message.cancel().id();
        const uint32_t attempt = message.has_offer() ? message.offer().attempt()
                                 : message.has_ack() ? message.ack().attempt()
                                                     : message.cancel().attempt();
        const auto it = outgoing_.find(id);
        if (it == outgoing_.end() || it->second->attempt != attempt) return;  // of an ended attempt
        Outgoing& outgoing = *it->second;
        if (message.has_cancel()) return end(id, message.cancel().why());
        // An offer counts once: push() reads it without the lock.
        if (outgoing.ended || (message.has_offer() && !outgoing.offered.empty())) return;
        if (message.has_ack()) {
            outgoing.ended = true;
            if (outgoing.first_push != TimePoint{}) {
                options_.metrics.kv_transfer_time.observe(seconds_since(outgoing.first_push));
            }
        } else if (!take_offer(message.offer(), outgoing)) {
            return end(id, "the decode side offered fewer blocks than the prompt needs");
        }
        events_.push_back({.kind = message.has_ack() ? PrefillEvent::Kind::kAcked
                                                     : PrefillEvent::Kind::kOffered,
                           .id = id,
                           .attempt = attempt,
                           .why = {},
                           .request = {}});
    }

    bool take_offer(const proto::KvOffer& offer, Outgoing& outgoing) const {
        const int page = options_.pools.front().page_size;
        if (offer.blocks_size() < (outgoing.num_tokens + page - 1) / page) return false;
        outgoing.offered.assign(offer.blocks().begin(), offer.blocks().end());
        return true;
    }

    const PrefillSideOptions options_;
    ControlSender sender_;
    ControlReceiver receiver_;

    mutable std::mutex mutex_;
    std::unordered_map<RequestId, std::shared_ptr<Outgoing>> outgoing_;  // shared with push()
    std::vector<std::shared_ptr<Outgoing>> replaced_;  // by a new attempt, perhaps still being sent
    std::vector<PrefillEvent> events_;
    std::optional<comm::PeerWatch> watch_;  // last: ends before what its listener uses
};

}  // namespace

std::unique_ptr<PrefillSide> make_prefill_side(PrefillSideOptions options) {
    return std::make_unique<PushingPrefillSide>(std::move(options));
}

}  // namespace aerie::transfer
