#include "transfer/decode_side.h"

#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/log.h"
#include "comm/peer_watch.h"
#include "comm/port_numbers.h"
#include "request/convert.h"
#include "transfer/control_message.h"

namespace aerie::transfer {
namespace {

// Blocks that one prefill attempt may write into. It lives until it is acknowledged or released.
struct Reservation {
    uint32_t attempt = 0;
    int prefill_replica = 0;
    int from_node = 0;
    uint32_t from_epoch = 0;
    std::vector<int32_t> blocks;     // of the prompt
    int writing = 0;                 // pushes that are being received
    uint64_t num_arrived = 0;        // pushes that are complete
    std::optional<proto::KvDone> done;
    bool ready = false;
    bool cancelled = false;
};

class PushedDecodeSide final : public DecodeSide, comm::Receiver {
  public:
    explicit PushedDecodeSide(DecodeSideOptions options)
        : options_(std::move(options)), sender_(options_.fabric, options_.replica) {
        watch_.emplace(*options_.fabric,
                       [this](int node, uint32_t epoch) { peer_changed(node, epoch); });
        options_.fabric->open(comm::kv_port(true, options_.replica), this);
    }
    ~PushedDecodeSide() override { options_.fabric->close(comm::kv_port(true, options_.replica)); }

    std::vector<DecodeEvent> poll() override {
        std::lock_guard lock(mutex_);
        return std::exchange(events_, {});
    }

    void offer(RequestId id, uint32_t attempt, int prefill_replica, int num_tokens,
               const std::vector<int32_t>& blocks) override {
        const comm::Destination to = options_.prefill.at(prefill_replica);
        const int page = options_.pools.front().page_size;
        proto::KvMessage message;
        auto* offer = message.mutable_offer();
        offer->set_id(id);
        offer->set_attempt(attempt);
        {
            std::lock_guard lock(mutex_);
            CHECK(!reservations_.contains(id), "request {} is offered twice", id);
            Reservation& reservation = reservations_[id];
            reservation.attempt = attempt;
            reservation.prefill_replica = prefill_replica;
            reservation.from_node = to.node;
            reservation.from_epoch = options_.fabric->peer_epoch(to.node);
            reservation.blocks.assign(blocks.begin(), blocks.begin() + (num_tokens + page - 1) / page);
            offer->mutable_blocks()->Add(reservation.blocks.begin(), reservation.blocks.end());
        }
        if (Status sent = sender_.send(to, message); !sent) {
            std::lock_guard lock(mutex_);
            lose(id, fmt::format("the prefill host node-{} cannot be reached", to.node));
        }
    }

    void acknowledge(RequestId id) override {
        proto::KvMessage message;
        comm::Destination to{};
        {
            std::lock_guard lock(mutex_);
            const auto it = reservations_.find(id);
            CHECK(it != reservations_.end() && it->second.ready, "request {} is not ready", id);
            message.mutable_ack()->set_id(id);
            message.mutable_ack()->set_attempt(it->second.attempt);
            to = options_.prefill.at(it->second.prefill_replica);
            reservations_.erase(it);
        }
        (void)sender_.send(to, message);  // a prefill host that is gone has nothing to free
    }

    void cancel(RequestId id, uint32_t attempt, int prefill_replica, const std::string& why) override {
        {
            std::lock_guard lock(mutex_);
            const auto it = reservations_.find(id);
            if (it != reservations_.end() && it->second.attempt == attempt) {
                it->second.cancelled = true;
                release_if_quiet(it);
            }
        }
        options_.notify();
        proto::KvMessage message;
        message.mutable_cancel()->set_id(id);
        message.mutable_cancel()->set_attempt(attempt);
        message.mutable_cancel()->set_why(why);
        (void)sender_.send(options_.prefill.at(prefill_replica), message);
    }

    Status retract(const Request& request, uint32_t attempt, int num_output) override {
        proto::KvMessage message;
        auto* retract = message.mutable_retract();
        to_proto(request, *retract->mutable_request());
        retract->set_attempt(attempt);
        retract->set_num_output(num_output);
        return sender_.send(options_.prefill.at(request.prefill_replica), message);
    }

  private:
    using Reservations = std::unordered_map<RequestId, Reservation>;

    // All of the following with the lock held.

    void release_if_quiet(Reservations::iterator it) {
        if (it->second.writing > 0) return;
        events_.push_back({.kind = DecodeEvent::Kind::kReleased,
                           .id = it->first,
                           .attempt = it->second.attempt,
                           .first = {},
                           .why = {}});
        reservations_.erase(it);
    }

    // The prefill side will write no more. The leader answers with cancel().
    void lose(RequestId id, const std::string& why) {
        const auto it = reservations_.find(id);
        if (it == reservations_.end() || it->second.cancelled || it->second.ready) return;
        events_.push_back({.kind = DecodeEvent::Kind::kCancelled,
                           .id = id,
                           .attempt = it->second.attempt,
                           .prefill_replica = it->second.prefill_replica,
                           .first = {},
                           .why = why});
    }

    void check_ready(RequestId id, Reservation& reservation) {
        if (reservation.ready || reservation.cancelled || !reservation.done) return;
        if (reservation.num_arrived < reservation.done->num_pushes()) return;
        reservation.ready = true;
        events_.push_back({.kind = DecodeEvent::Kind::kReady,
                           .id = id,
                           .attempt = reservation.attempt,
                           .prefill_replica = reservation.prefill_replica,
                           .first = from_proto(reservation.done->first()),
                           .why = {}});
    }

    Reservation* reservation_of(const comm::Incoming& message, const KvHeader& header) {
        const auto it = reservations_.find(header.id);
        if (it == reservations_.end()) return nullptr;
        Reservation& reservation = it->second;
        const bool right = reservation.attempt == header.attempt &&
                           reservation.from_node == message.node &&
                           reservation.from_epoch == message.epoch;
        return right ? &reservation : nullptr;
    }

    // Where a push may land: only in a block that its request's live reservation holds.
    std::byte* target(const comm::Incoming& message, const KvHeader& header) {
        const Reservation* reservation = reservation_of(message, header);
        if (reservation == nullptr || reservation->cancelled) return nullptr;
        const int cp = static_cast<int>(options_.pools.size());
        const auto& blocks = reservation->blocks;
        if (header.first_block < 0 || header.first_block >= static_cast<int>(blocks.size())) return nullptr;
        const Pool& pool = options_.pools[header.first_block % cp];
        const int num_blocks = (header.num_tokens + pool.page_size - 1) / pool.page_size;
        if (header.layer < 0 || header.layer >= static_cast<int>(pool.layers.size()) ||
            header.num_tokens <= 0 || header.num_tokens > static_cast<int>(blocks.size()) * pool.page_size ||
            header.first_block + num_blocks > static_cast<int>(blocks.size()) ||
            message.payload_bytes != header.num_tokens * pool.token_bytes ||
            (num_blocks > 1 && cp > 1)) {
            return nullptr;
        }
        const int32_t* run = &blocks[header.first_block];
        for (int i = 1; i < num_blocks; ++i) {
            if (run[i] != run[0] + i) return nullptr;  // a run is one piece of memory here too
        }
        return pool.layers[header.layer] + run[0] * pool.block_bytes();
    }

    void handle(int node, uint32_t epoch, const KvHeader& header, const proto::KvMessage& message) {
        if (message.has_announce()) {
            if (header.replica < 0 || header.replica >= static_cast<int>(options_.prefill.size())) return;
            events_.push_back({.kind = DecodeEvent::Kind::kAnnounced,
                               .id = message.announce().id(),
                               .attempt = message.announce().attempt(),
                               .prefill_replica = header.replica,
                               .epoch = epoch,
                               .num_tokens = message.announce().num_tokens(),
                               .first = {},
                               .why = {}});
        } else if (message.has_cancel()) {
            // Also for a request without a reservation: the leader may hold its announcement.
            events_.push_back({.kind = DecodeEvent::Kind::kCancelled,
                               .id = message.cancel().id(),
                               .attempt = message.cancel().attempt(),
                               .prefill_replica = header.replica,
                               .first = {},
                               .why = message.cancel().why()});
        } else if (message.has_done()) {
            const auto it = reservations_.find(message.done().id());
            if (it == reservations_.end() || it->second.attempt != message.done().attempt() ||
                it->second.from_node != node) {
                return;
            }
            it->second.done = message.done();
            check_ready(it->first, it->second);
        }
    }

    void peer_changed(int node, uint32_t epoch) {
        {
            std::lock_guard lock(mutex_);
            for (const auto& [id, reservation] : reservations_) {
                if (reservation.from_node == node && reservation.from_epoch != epoch) {
                    lose(id, fmt::format("the prefill host node-{} died", node));
                }
            }
        }
        options_.notify();
    }

    // comm::Receiver
    std::byte* accept(const comm::Incoming& message) override {
        const auto header = read_header(message);
        if (!header) return nullptr;
        if (header->kind == MessageKind::kControl) return receiver_.accept(message, *header);
        std::lock_guard lock(mutex_);
        std::byte* where = target(message, *header);
        if (where != nullptr) ++reservation_of(message, *header)->writing;
        return where;
    }

    void failed(const comm::Incoming& message) override {
        const auto header = read_header(message);
        if (!header) return;
        if (header->kind == MessageKind::kControl) return receiver_.failed(message, *header);
        written(message, *header, false);
    }

    void delivered(const comm::Incoming& message, const std::byte* payload) override {
        const auto header = read_header(message);
        if (!header) return;
        if (header->kind == MessageKind::kPush) return written(message, *header, true);
        const auto parsed = receiver_.delivered(message, *header, payload);
        if (!parsed) return;
        {
            std::lock_guard lock(mutex_);
            handle(message.node, message.epoch, *header, *parsed);
        }
        options_.notify();
    }

    void written(const comm::Incoming& message, const KvHeader& header, bool complete) {
        bool told = false;
        {
            std::lock_guard lock(mutex_);
            Reservation* reservation = reservation_of(message, header);
            if (reservation == nullptr) return;
            --reservation->writing;
            if (complete) ++reservation->num_arrived;
            if (reservation->cancelled) {
                release_if_quiet(reservations_.find(header.id));
                told = true;
            } else {
                check_ready(header.id, *reservation);
                told = reservation->ready;
            }
        }
        if (told) options_.notify();
    }

    const DecodeSideOptions options_;
    ControlSender sender_;
    ControlReceiver receiver_;

    std::mutex mutex_;
    Reservations reservations_;
    std::vector<DecodeEvent> events_;
    std::optional<comm::PeerWatch> watch_;  // last: ends before what its listener uses
};

}  // namespace

std::unique_ptr<DecodeSide> make_decode_side(DecodeSideOptions options) {
    return std::make_unique<PushedDecodeSide>(std::move(options));
}

}  // namespace aerie::transfer
