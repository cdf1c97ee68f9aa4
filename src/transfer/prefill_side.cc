#include "transfer/prefill_side.h"

#include <algorithm>

#include "comm/port_numbers.h"
#include "request/convert.h"
#include "transfer/prefill_side_impl.h"

namespace aerie::transfer {
namespace {

PrefillEvent event(PrefillEvent::Kind kind, const Outgoing& outgoing, std::string why = {}) {
    return {.kind = kind,
            .id = outgoing.id,
            .attempt = outgoing.attempt,
            .why = std::move(why),
            .request = {}};
}

}  // namespace

proto::KvMessage cancel_message(RequestId id, uint32_t attempt, const std::string& why) {
    proto::KvMessage message;
    message.mutable_cancel()->set_id(id);
    message.mutable_cancel()->set_attempt(attempt);
    message.mutable_cancel()->set_why(why);
    return message;
}

PrefillSideImpl::PrefillSideImpl(PrefillSideOptions options)
    : Side(*options.fabric, comm::kv_port(false, options.replica), options.replica, options.decode,
           options.notify),
      options_(std::move(options)), regions_(options_.pools), prepared_(options_.pools.size()),
      scratch_(options_.pools.size()) {
    start(fmt::format("kv-prefill-{}", options_.replica));
}

PrefillSideImpl::~PrefillSideImpl() {
    stop([this] {
        return std::any_of(outgoing_.begin(), outgoing_.end(),
                           [](const auto& entry) { return entry.second->writing > 0; });
    });
}

void PrefillSideImpl::begin(RequestId id, uint32_t attempt, int decode_replica, int num_tokens, Mode mode) {
    const comm::Destination to = options_.decode.at(decode_replica);
    auto outgoing = std::make_shared<Outgoing>();
    outgoing->id = id;
    outgoing->attempt = attempt;
    outgoing->to = to;
    const uint64_t connection = fabric_.peer_connection(to.node);
    outgoing->to_epoch = fabric_.peer_epoch(to.node);
    outgoing->num_tokens = num_tokens;
    outgoing->mode = mode;
    {
        Locked locked(*this);
        // A decode side that asks for the same attempt again.
        if (!outgoing_.emplace(Key{id, attempt}, outgoing).second) {
            return locked.tell(event(PrefillEvent::Kind::kCancelled, *outgoing, "this attempt has begun already"));
        }
        if (mode == Mode::kPush) {
            proto::KvMessage message;
            auto* announce = message.mutable_announce();
            announce->set_id(id);
            announce->set_attempt(attempt);
            locked.send(to, std::move(message));
        }
    }
    // What happened to the peer before the attempt was known here was not told to it.
    if (connection != 0 && connection == fabric_.peer_connection(to.node)) return;
    Locked locked(*this);
    if (outgoing->ended) return;
    const std::string why = fmt::format("the decode host node-{} is gone", to.node);
    end_with(*outgoing, cancel_message(id, attempt, why), why, locked);
}

bool PrefillSideImpl::pull_instead(RequestId id) {
    std::lock_guard lock(mutex_);
    const auto outgoing = newest(id);
    if (outgoing == nullptr || outgoing->ended || outgoing->target) return false;
    outgoing->mode = Mode::kPull;
    return true;
}

void PrefillSideImpl::done(RequestId id, const TokenOut& first, std::span<const int32_t> blocks) {
    Locked locked(*this);
    const auto outgoing = newest(id);
    if (outgoing == nullptr || outgoing->ended) return;
    proto::KvMessage message;
    auto* done = message.mutable_done();
    done->set_id(id);
    done->set_attempt(outgoing->attempt);
    done->set_num_tokens(outgoing->num_tokens);
    to_proto(first, *done->mutable_first());
    if (outgoing->mode == Mode::kPush) {
        outgoing->done = std::move(message);
        return settle(*outgoing, locked);
    }
    const auto count = static_cast<size_t>(regions_.blocks_for(outgoing->num_tokens));
    CHECK(blocks.size() >= count, "{} blocks for {} tokens", blocks.size(), outgoing->num_tokens);
    auto* source = done->mutable_source();
    source->mutable_blocks()->Add(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(count));
    regions_.describe(*source);
    outgoing->leased = true;
    // Longer each time, so that a request whose leases run out is read in the end.
    outgoing->lease_end = after(options_.lease_s * outgoing->attempt);
    locked.send(outgoing->to, std::move(message));
    wake_courier();  // to look at the clock
}

void PrefillSideImpl::cancel(RequestId id, uint32_t attempt, int decode_replica, const std::string& why) {
    Locked locked(*this);
    proto::KvMessage message = cancel_message(id, attempt, why);
    const auto found = outgoing_.find({id, attempt});
    if (found == outgoing_.end()) {
        const comm::Destination to = options_.decode.at(decode_replica);
        const uint32_t epoch = fabric_.peer_epoch(to.node);
        kept_.add(to, epoch, epoch != 0, message);
        return locked.send(to, std::move(message));
    }
    const auto outgoing = found->second;
    if (outgoing->ended) return;
    outgoing->ended = true;
    outgoing->farewell = std::move(message);
    settle(*outgoing, locked);
}

bool PrefillSideImpl::end_newest_lease(const std::string& why) {
    Locked locked(*this);
    std::shared_ptr<Outgoing> latest;
    for (const auto& [key, outgoing] : outgoing_) {
        if (!outgoing->leased || outgoing->ended) continue;
        if (latest == nullptr || outgoing->lease_end > latest->lease_end) latest = outgoing;
    }
    if (latest != nullptr) end_lease(*latest, why, locked);
    return latest != nullptr;
}

std::shared_ptr<Outgoing> PrefillSideImpl::newest(RequestId id) const {
    const auto past = outgoing_.upper_bound({id, UINT32_MAX});
    if (past == outgoing_.begin() || std::prev(past)->first.first != id) return nullptr;
    return std::prev(past)->second;
}

// Ends an attempt from the other side, or for want of it.
void PrefillSideImpl::end(Outgoing& outgoing, const std::string& why, Locked& locked) {
    if (outgoing.ended) return;
    outgoing.ended = true;
    locked.tell(event(PrefillEvent::Kind::kCancelled, outgoing, why));
    settle(outgoing, locked);
}

void PrefillSideImpl::end_with(Outgoing& outgoing, proto::KvMessage farewell, const std::string& why,
                               Locked& locked) {
    outgoing.farewell = std::move(farewell);
    end(outgoing, why, locked);
}

void PrefillSideImpl::end_lease(Outgoing& outgoing, const std::string& why, Locked& locked) {
    proto::KvMessage message = cancel_message(outgoing.id, outgoing.attempt, why);
    message.mutable_cancel()->set_lease_ran_out(true);
    end_with(outgoing, std::move(message), why, locked);
}

// What waits for the last write: the end of the attempt, or the message that all is there.
void PrefillSideImpl::settle(Outgoing& outgoing, Locked& locked) {
    if (outgoing.writing > 0) return;
    if (outgoing.ended) {
        if (outgoing.farewell) {
            if (outgoing.farewell->has_cancel()) keep(outgoing, *outgoing.farewell);
            locked.send(outgoing.to, *std::move(outgoing.farewell));
        }
        locked.tell(event(PrefillEvent::Kind::kReleased, outgoing));
        leave(outgoing);
    } else if (outgoing.done && !outgoing.done_sent) {
        outgoing.done_sent = true;
        options_.metrics.active_transfers.add();
        count_bytes(outgoing);
        locked.send(outgoing.to, *outgoing.done);
    }
}

// What the decode side is told of an attempt's end, in case that a lost connection takes it along.
void PrefillSideImpl::keep(const Outgoing& outgoing, proto::KvMessage cancel) {
    const bool connected = fabric_.peer_epoch(outgoing.to.node) != 0;
    kept_.add(outgoing.to, outgoing.to_epoch, connected, std::move(cancel));
}

// The caller holds the attempt, or does not touch it any more.
void PrefillSideImpl::leave(Outgoing& outgoing) {
    count_bytes(outgoing);
    outgoing_.erase(Key{outgoing.id, outgoing.attempt});
}

void PrefillSideImpl::count_bytes(Outgoing& outgoing) {
    const size_t bytes = std::exchange(outgoing.bytes, 0);
    if (bytes == 0 || outgoing.to.node == fabric_.node()) return;
    options_.metrics.kv_transfer_bytes_active.add(static_cast<double>(bytes));
}

void PrefillSideImpl::acked(Outgoing& outgoing, Locked& locked) {
    if (outgoing.first_push != TimePoint{}) {
        options_.metrics.kv_transfer_time.observe(seconds_since(outgoing.first_push));
    }
    locked.tell(event(PrefillEvent::Kind::kAcked, outgoing));
    leave(outgoing);
}

// What a connection has lost of an attempt is not known: the attempt ends. A decode side that has heard of
// it learns of the loss itself; one that has not is told when it is back.
void PrefillSideImpl::peer_changed(int node, uint32_t epoch) {
    Locked locked(*this);
    kept_.lost(node);
    for (auto it = outgoing_.begin(); it != outgoing_.end();) {
        const auto outgoing = (it++)->second;  // end() may take it out
        if (outgoing->to.node != node || outgoing->to_epoch == epoch) continue;
        const std::string why = fmt::format("the connection to the decode host node-{} was lost", node);
        if (!outgoing->ended) {
            kept_.add(outgoing->to, outgoing->to_epoch, false, cancel_message(outgoing->id, outgoing->attempt, why));
        } else if (outgoing->farewell && outgoing->farewell->has_cancel()) {
            kept_.add(outgoing->to, outgoing->to_epoch, false, *std::move(outgoing->farewell));
        }
        outgoing->farewell.reset();
        end(*outgoing, why, locked);
    }
    if (epoch == 0) return;
    for (auto& [to, message] : kept_.back(node, epoch)) locked.send(to, std::move(message));
}

std::unique_ptr<PrefillSide> make_prefill_side(PrefillSideOptions options) {
    return std::make_unique<PrefillSideImpl>(std::move(options));
}

}  // namespace aerie::transfer
