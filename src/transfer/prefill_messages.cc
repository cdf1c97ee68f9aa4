// What the decode side says, and what the clock brings: on the courier's thread.
#include <algorithm>

#include "base/log.h"
#include "request/convert.h"
#include "transfer/prefill_side_impl.h"

namespace aerie::transfer {

TimePoint PrefillSideImpl::attend() {
    for (const auto& letter : take_letters()) handle(letter);
    return end_late_leases();
}

TimePoint PrefillSideImpl::end_late_leases() {
    Locked locked(*this);
    const TimePoint now = Clock::now();
    TimePoint next = after(1);
    for (auto it = outgoing_.begin(); it != outgoing_.end();) {
        const auto outgoing = (it++)->second;  // end_lease() takes it out
        if (!outgoing->leased || outgoing->ended) continue;
        if (outgoing->lease_end > now) {
            next = std::min(next, outgoing->lease_end);
            continue;
        }
        log_warning("request {}: the decode side has not read its KV within {} s (kv_lease_s = {}, "
                    "attempt {}): it is computed again",
                    outgoing->id, options_.lease_s * outgoing->attempt, options_.lease_s,
                    outgoing->attempt);
        end_lease(*outgoing, "the lease on the KV ran out", locked);
    }
    return next;
}

void PrefillSideImpl::handle(const Letter& letter) {
    const proto::KvMessage& message = letter.message;
    if (message.has_offer()) return take_offer(letter);
    Locked locked(*this);
    if (message.has_retract()) return take_back(letter, locked);
    if (message.has_read()) return answer_read(letter, locked);
    if (message.has_ack()) {
        const auto outgoing = find(message.ack(), letter);
        if (outgoing != nullptr && outgoing->done_sent) acked(*outgoing, locked);
    } else if (message.has_cancel()) {
        proto::KvMessage stopped;
        stopped.mutable_stopped()->set_id(message.cancel().id());
        stopped.mutable_stopped()->set_attempt(message.cancel().attempt());
        const auto outgoing = find(message.cancel(), letter);
        if (outgoing == nullptr) return locked.send(options_.decode[letter.replica], std::move(stopped));
        end_with(*outgoing, std::move(stopped), message.cancel().why(), locked);
    }
}

void PrefillSideImpl::take_offer(const Letter& letter) {
    const proto::KvOffer& offer = letter.message.offer();
    const auto wanted = [&]() -> std::shared_ptr<Outgoing> {
        const auto outgoing = find(offer, letter);
        const bool open = outgoing != nullptr && !outgoing->ended && !outgoing->target;
        return open && outgoing->mode == Mode::kPush ? outgoing : nullptr;
    };
    int num_tokens = 0;
    {
        Locked locked(*this);
        // Lost with a connection that has come back since: the decode side asks for it again.
        if (find(offer, letter) == nullptr) {
            auto message = cancel_message(offer.id(), offer.attempt(), "this attempt is not known");
            message.mutable_cancel()->set_lease_ran_out(true);
            return locked.send(options_.decode[letter.replica], std::move(message));
        }
        const auto outgoing = wanted();
        if (outgoing == nullptr) return;
        num_tokens = outgoing->num_tokens;
    }
    auto target = attach(fabric_, offer.target(), regions_.blocks_for(num_tokens),
                         options_.pools.front());
    Locked locked(*this);
    const auto outgoing = wanted();
    if (outgoing == nullptr) return;
    if (!target) {
        return end_with(*outgoing, cancel_message(offer.id(), offer.attempt(), target.message()),
                        target.message(), locked);
    }
    outgoing->target = *std::move(target);
    locked.tell({.kind = PrefillEvent::Kind::kOffered,
                 .id = outgoing->id,
                 .attempt = outgoing->attempt,
                 .why = {},
                 .request = {}});
}

// The bytes that were read are right where the blocks have been kept until now.
void PrefillSideImpl::answer_read(const Letter& letter, Locked& locked) {
    const proto::KvRead& read = letter.message.read();
    const auto outgoing = find(read, letter);
    const bool valid = outgoing != nullptr && outgoing->leased && !outgoing->ended;
    proto::KvMessage message;
    auto* confirm = message.mutable_confirm();
    confirm->set_id(read.id());
    confirm->set_attempt(read.attempt());
    confirm->set_valid(valid);
    locked.send(options_.decode[letter.replica], std::move(message));
    if (valid) acked(*outgoing, locked);
}

void PrefillSideImpl::take_back(const Letter& letter, Locked& locked) {
    const proto::KvRetract& retract = letter.message.retract();
    const int replica = retract.request().decode_replica();
    if (replica != letter.replica) {
        log_error("KV message dropped: request {} of decode replica {} is retracted by replica {}",
                  retract.request().id(), replica, letter.replica);
        return;
    }
    // A life that has ended meanwhile does not wait for it any more.
    if (fabric_.peer_epoch(letter.node) != letter.epoch) return;
    for (const int32_t token : retract.request().prompt()) {
        if (token >= 0 && token < options_.vocab_size) continue;
        const std::string why = fmt::format("token {} of a prompt that is to be computed again, expected 0 to {}",
                                            token, options_.vocab_size - 1);
        return locked.send(options_.decode[letter.replica],
                           cancel_message(retract.request().id(), retract.attempt(), why));
    }
    // The acknowledgement of the attempt before may be on its way still.
    const auto before = newest(retract.request().id());
    if (before != nullptr && before->attempt >= retract.attempt()) {
        log_error("KV message dropped: request {} is to be computed again as attempt {} after attempt {}",
                  before->id, retract.attempt(), before->attempt);
        return;
    }
    if (before != nullptr) {
        if (before->done_sent && !before->ended) acked(*before, locked);
        else end(*before, "the decode side has it computed again", locked);
    }
    locked.tell({.kind = PrefillEvent::Kind::kRetracted,
                 .id = retract.request().id(),
                 .attempt = retract.attempt(),
                 .why = {},
                 .request = from_proto(retract.request()),
                 .num_output = retract.num_output()});
}

}  // namespace aerie::transfer
