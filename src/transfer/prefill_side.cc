#include "transfer/prefill_side.h"

#include <algorithm>
#include <thread>

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
    : options_(std::move(options)), regions_(options_.pools),
      sender_(options_.fabric, options_.replica), mail_(options_.decode),
      prepared_(options_.pools.size()), scratch_(options_.pools.size()) {}

void PrefillSideImpl::start() {
    courier_.emplace(fmt::format("kv-prefill-{}", options_.replica), [this] { return attend(); });
    watch_.emplace(*options_.fabric, [this](int node, uint32_t epoch) { peer_changed(node, epoch); });
    options_.fabric->open(comm::kv_port(false, options_.replica), this);
}

// Waits for writes under way: they read the pools. The fabric ends them also where a peer has died.
PrefillSideImpl::~PrefillSideImpl() {
    options_.fabric->close(comm::kv_port(false, options_.replica));
    if (courier_) courier_->stop();
    const auto writing = [this] {
        std::lock_guard lock(mutex_);
        return std::any_of(outgoing_.begin(), outgoing_.end(),
                           [](const auto& entry) { return entry.second->writing > 0; });
    };
    while (writing()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

PrefillSideImpl::Locked::~Locked() {
    lock_.unlock();
    // A peer that is gone is told of by peer_changed().
    for (const auto& [to, message] : letters_) (void)side_.sender_.send(to, message);
    if (news_) side_.options_.notify();
}

void PrefillSideImpl::Locked::tell(PrefillEvent event) {
    side_.events_.push_back(std::move(event));
    news_ = true;
}

std::vector<PrefillEvent> PrefillSideImpl::poll() {
    std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
}

void PrefillSideImpl::begin(RequestId id, uint32_t attempt, int decode_replica, int num_tokens, Mode mode) {
    const comm::Destination to = options_.decode.at(decode_replica);
    auto outgoing = std::make_shared<Outgoing>();
    outgoing->id = id;
    outgoing->attempt = attempt;
    outgoing->to = to;
    outgoing->to_epoch = options_.fabric->peer_epoch(to.node);
    outgoing->num_tokens = num_tokens;
    outgoing->mode = mode;
    {
        Locked locked(*this);
        CHECK(!outgoing_.contains({id, attempt}), "attempt {} of request {} begins twice", attempt, id);
        outgoing_[{id, attempt}] = outgoing;
        if (mode == Mode::kPush) {
            proto::KvMessage message;
            auto* announce = message.mutable_announce();
            announce->set_id(id);
            announce->set_attempt(attempt);
            announce->set_num_tokens(num_tokens);
            locked.send(to, std::move(message));
        }
    }
    // What happened to the peer before the attempt was known here was not told to it.
    const uint32_t epoch = options_.fabric->peer_epoch(to.node);
    if (epoch != 0 && epoch == outgoing->to_epoch) return;
    Locked locked(*this);
    end(*outgoing, fmt::format("the decode host node-{} is gone", to.node), locked);
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
    courier_->wake();  // to look at the clock
}

void PrefillSideImpl::cancel(RequestId id, uint32_t attempt, int decode_replica, const std::string& why) {
    Locked locked(*this);
    proto::KvMessage message = cancel_message(id, attempt, why);
    const auto found = outgoing_.find({id, attempt});
    if (found == outgoing_.end()) {
        return locked.send(options_.decode.at(decode_replica), std::move(message));
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
        if (outgoing.farewell) locked.send(outgoing.to, *std::move(outgoing.farewell));
        locked.tell(event(PrefillEvent::Kind::kReleased, outgoing));
        leave(outgoing);
    } else if (outgoing.done && !outgoing.done_sent) {
        outgoing.done_sent = true;
        options_.metrics.active_transfers.add();
        count_bytes(outgoing);
        locked.send(outgoing.to, *outgoing.done);
    }
}

// The caller holds the attempt, or does not touch it any more.
void PrefillSideImpl::leave(Outgoing& outgoing) {
    count_bytes(outgoing);
    outgoing_.erase(Key{outgoing.id, outgoing.attempt});
}

void PrefillSideImpl::count_bytes(Outgoing& outgoing) {
    const size_t bytes = std::exchange(outgoing.bytes, 0);
    if (bytes == 0 || outgoing.to.node == options_.fabric->node()) return;
    options_.metrics.kv_transfer_bytes_active.add(static_cast<double>(bytes));
}

void PrefillSideImpl::acked(Outgoing& outgoing, Locked& locked) {
    if (outgoing.first_push != TimePoint{}) {
        options_.metrics.kv_transfer_time.observe(seconds_since(outgoing.first_push));
    }
    locked.tell(event(PrefillEvent::Kind::kAcked, outgoing));
    leave(outgoing);
}

void PrefillSideImpl::peer_changed(int node, uint32_t epoch) {
    Locked locked(*this);
    for (auto it = outgoing_.begin(); it != outgoing_.end();) {
        const auto outgoing = (it++)->second;  // end() may take it out
        if (outgoing->to.node != node || outgoing->to_epoch == epoch) continue;
        outgoing->farewell.reset();
        end(*outgoing, fmt::format("the decode host node-{} died", node), locked);
    }
}

std::unique_ptr<PrefillSide> make_prefill_side(PrefillSideOptions options) {
    auto side = std::make_unique<PrefillSideImpl>(std::move(options));
    side->start();
    return side;
}

}  // namespace aerie::transfer
