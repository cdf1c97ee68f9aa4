// What the prefill side says: on the courier's thread.
#include <algorithm>

#include "base/log.h"
#include "transfer/decode_side_impl.h"

namespace aerie::transfer {

TimePoint DecodeSideImpl::attend() {
    for (const auto& letter : take_letters()) handle(letter);
    std::vector<std::shared_ptr<Arriving>> to_read;
    {
        std::lock_guard lock(mutex_);
        to_read.swap(to_read_);
    }
    for (const auto& arriving : to_read) read(arriving);
    return after(1);
}

void DecodeSideImpl::handle(const Letter& letter) {
    const proto::KvMessage& message = letter.message;
    Locked locked(*this);
    if (message.has_announce()) {
        locked.tell({.kind = DecodeEvent::Kind::kAnnounced,
                     .id = message.announce().id(),
                     .attempt = message.announce().attempt(),
                     .prefill_replica = letter.replica,
                     .epoch = letter.epoch,
                     .first = {},
                     .why = {}});
    } else if (message.has_done()) {
        take_done(letter, locked);
    } else if (message.has_cancel()) {
        take_cancel(letter, locked);
    } else if (message.has_confirm()) {
        take_confirm(letter, locked);
    } else if (message.has_stopped()) {
        const auto arriving = find(message.stopped().id(), message.stopped().attempt());
        if (arriving == nullptr || arriving->from_epoch != letter.epoch) return;
        arriving->stopped = true;
        settle(*arriving, locked);
    }
}

void DecodeSideImpl::take_done(const Letter& letter, Locked& locked) {
    const proto::KvDone& done = letter.message.done();
    auto arriving = find(done.id(), done.attempt());
    if (arriving != nullptr && (arriving->from_epoch != letter.epoch || arriving->done)) return;
    if (!done.has_source()) {
        if (arriving == nullptr || arriving->cancelled) return;
        if (std::string why = fault_in(done, *arriving); !why.empty()) {
            return locked.tell(event(DecodeEvent::Kind::kCancelled, *arriving, std::move(why)));
        }
        arriving->done = done;
        arriving->ready = true;
        return locked.tell(event(DecodeEvent::Kind::kReady, *arriving));
    }
    if (arriving == nullptr) {
        auto& place = arriving_[done.id()];
        if (place != nullptr && (!place->blocks.empty() || place->attempt > done.attempt())) return;
        place = std::make_shared<Arriving>();
        arriving = place;
        arriving->id = done.id();
        arriving->attempt = done.attempt();
        arriving->prefill_replica = letter.replica;
        arriving->from_node = letter.node;
        arriving->from_epoch = letter.epoch;
        arriving->pulled = true;
        locked.tell(event(DecodeEvent::Kind::kAnnounced, *arriving));
    }
    arriving->done = done;
    arriving->pulled = true;
    // It may have been offered already: the prefill side did not wait for that.
    if (!arriving->blocks.empty()) to_read_.push_back(arriving);
    settle(*arriving, locked);
}

// Why what a peer says of the KV of an offered request cannot be; empty: it can.
std::string DecodeSideImpl::fault_in(const proto::KvDone& done, const Arriving& arriving) const {
    if (done.num_tokens() != arriving.num_tokens) {
        return fmt::format("the prefill side has KV of {} tokens, expected {}", done.num_tokens(),
                           arriving.num_tokens);
    }
    const auto strange = [this](int32_t token) { return token < 0 || token >= options_.vocab_size; };
    const auto said = [this](int32_t token) {
        return fmt::format("the prefill side has token {}, expected 0 to {}", token, options_.vocab_size - 1);
    };
    const proto::TokenOut& first = done.first();
    for (const int32_t token : first.tokens()) {
        if (strange(token)) return said(token);
    }
    for (const auto* logprobs : {&first.logprobs(), &first.prompt_logprobs()}) {
        for (const auto& of_token : *logprobs) {
            const auto& ids = of_token.top_ids();
            const auto found = std::find_if(ids.begin(), ids.end(), strange);
            if (found != ids.end()) return said(*found);
        }
    }
    return {};
}

void DecodeSideImpl::take_cancel(const Letter& letter, Locked& locked) {
    const proto::KvCancel& cancel = letter.message.cancel();
    const auto arriving = find(cancel.id(), cancel.attempt());
    if (arriving == nullptr) {
        // The leader may hold its announcement. Without an announcement no lease is missed.
        if (cancel.lease_ran_out()) return;
        return locked.tell({.kind = DecodeEvent::Kind::kCancelled,
                            .id = cancel.id(),
                            .attempt = cancel.attempt(),
                            .prefill_replica = letter.replica,
                            .epoch = letter.epoch,
                            .first = {},
                            .why = cancel.why()});
    }
    if (arriving->from_epoch != letter.epoch || arriving->ready) return;
    if (std::exchange(arriving->stopped, true) && !arriving->cancelled) return;  // told already
    if (cancel.lease_ran_out()) arriving->lost = true;
    if (arriving->cancelled || arriving->lost) return settle(*arriving, locked);
    locked.tell(event(DecodeEvent::Kind::kCancelled, *arriving, cancel.why()));
}

// What was read counts only where the lease still held when the read had ended.
void DecodeSideImpl::take_confirm(const Letter& letter, Locked& locked) {
    const proto::KvConfirm& confirm = letter.message.confirm();
    const auto arriving = find(confirm.id(), confirm.attempt());
    if (arriving == nullptr || arriving->from_epoch != letter.epoch || !arriving->asked) return;
    arriving->stopped = true;
    if (!confirm.valid()) arriving->lost = true;
    if (arriving->cancelled || arriving->lost) return settle(*arriving, locked);
    arriving->ready = true;
    options_.metrics.passive_transfers.add();
    options_.metrics.kv_transfer_time.observe(seconds_since(arriving->read_begin));
    locked.tell(event(DecodeEvent::Kind::kReady, *arriving));
}

}  // namespace aerie::transfer
