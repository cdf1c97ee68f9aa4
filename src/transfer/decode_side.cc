#include "transfer/decode_side.h"

#include <algorithm>

#include "comm/port_numbers.h"
#include "request/convert.h"
#include "transfer/decode_side_impl.h"

namespace aerie::transfer {

DecodeSideImpl::DecodeSideImpl(DecodeSideOptions options)
    : Side(*options.fabric, comm::kv_port(true, options.replica), options.replica, options.prefill,
           options.notify),
      options_(std::move(options)), regions_(options_.pools) {
    start(fmt::format("kv-decode-{}", options_.replica));
}

DecodeSideImpl::~DecodeSideImpl() {
    stop([this] {
        return std::any_of(arriving_.begin(), arriving_.end(),
                           [](const auto& entry) { return entry.second->reading > 0; });
    });
}

DecodeEvent event(DecodeEvent::Kind kind, const Arriving& arriving, std::string why) {
    DecodeEvent event{.kind = kind,
                      .id = arriving.id,
                      .attempt = arriving.attempt,
                      .prefill_replica = arriving.prefill_replica,
                      .epoch = arriving.from_epoch,
                      .pulled = arriving.pulled,
                      .first = {},
                      .why = std::move(why)};
    if (kind == DecodeEvent::Kind::kReady) event.first = from_proto(arriving.done->first());
    return event;
}

void DecodeSideImpl::offer(const DecodeEvent& announced, int num_tokens, int num_matched,
                           std::span<const int32_t> blocks) {
    const auto count = static_cast<size_t>(regions_.blocks_for(num_tokens));
    CHECK(blocks.size() >= count && num_matched % regions_.page_size() == 0 && num_matched <= num_tokens,
          "{} blocks, {} of {} tokens matched", blocks.size(), num_matched, num_tokens);
    const int node = options_.prefill.at(announced.prefill_replica).node;
    {
        Locked locked(*this);
        // What was leased may have been lost since: then the leader is about to hear of it.
        if (announced.pulled && find(announced.id, announced.attempt) == nullptr) return;
        auto& place = arriving_[announced.id];
        CHECK(place == nullptr || place->blocks.empty(), "request {} is offered twice", announced.id);
        if (place == nullptr || place->attempt != announced.attempt) {
            place = std::make_shared<Arriving>();
            place->id = announced.id;
            place->attempt = announced.attempt;
            place->prefill_replica = announced.prefill_replica;
            place->from_node = node;
            place->from_epoch = announced.epoch;
        }
        place->num_tokens = num_tokens;
        place->first_block = num_matched / regions_.page_size();
        place->blocks.assign(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(count));
        if (place->pulled) {
            to_read_.push_back(place);
            wake_courier();
        } else {
            proto::KvMessage message;
            auto* offer = message.mutable_offer();
            offer->set_id(announced.id);
            offer->set_attempt(announced.attempt);
            auto* target = offer->mutable_target();
            target->set_first_block(place->first_block);
            target->mutable_blocks()->Add(place->blocks.begin() + place->first_block, place->blocks.end());
            regions_.describe(*target);
            locked.send(options_.prefill.at(announced.prefill_replica), std::move(message));
        }
    }
    // What happened to the peer before the attempt was known here was not told to it.
    if (fabric_.peer_epoch(node) == announced.epoch) return;
    Locked locked(*this);
    if (const auto arriving = find(announced.id, announced.attempt)) lose_peer(*arriving, locked);
}

void DecodeSideImpl::acknowledge(RequestId id) {
    Locked locked(*this);
    const auto found = arriving_.find(id);
    CHECK(found != arriving_.end() && found->second->ready, "request {} is not ready", id);
    const Arriving& arriving = *found->second;
    if (!arriving.pulled) {
        proto::KvMessage message;
        message.mutable_ack()->set_id(id);
        message.mutable_ack()->set_attempt(arriving.attempt);
        locked.send(options_.prefill.at(arriving.prefill_replica), std::move(message));
    }
    arriving_.erase(found);
}

void DecodeSideImpl::cancel(RequestId id, uint32_t attempt, int prefill_replica, const std::string& why) {
    Locked locked(*this);
    const auto arriving = find(id, attempt);
    if (arriving != nullptr && arriving->cancelled) return;
    if (arriving == nullptr || !arriving->stopped) {
        proto::KvMessage message;
        message.mutable_cancel()->set_id(id);
        message.mutable_cancel()->set_attempt(attempt);
        message.mutable_cancel()->set_why(why);
        locked.send(options_.prefill.at(prefill_replica), std::move(message));
    }
    if (arriving == nullptr) return;
    arriving->cancelled = true;
    settle(*arriving, locked);
}

Status DecodeSideImpl::retract(const Request& request, uint32_t attempt, int num_output) {
    proto::KvMessage message;
    auto* retract = message.mutable_retract();
    to_proto(request, *retract->mutable_request());
    retract->set_attempt(attempt);
    retract->set_num_output(num_output);
    return sender_.send(options_.prefill.at(request.prefill_replica), message);
}

std::shared_ptr<Arriving> DecodeSideImpl::find(RequestId id, uint32_t attempt) const {
    const auto found = arriving_.find(id);
    return found == arriving_.end() || found->second->attempt != attempt ? nullptr : found->second;
}

// What waits until nothing touches the blocks any more, or until all has been read.
void DecodeSideImpl::settle(Arriving& arriving, Locked& locked) {
    if (arriving.reading > 0) return;
    if (arriving.cancelled) {
        // Only a push that has not ended can still write.
        const bool written = !arriving.blocks.empty() && !arriving.pulled && !arriving.ready;
        if (!written || arriving.stopped) release(arriving, locked);
    } else if (arriving.lost) {
        locked.tell(event(DecodeEvent::Kind::kLeaseRanOut, arriving));
        arriving_.erase(RequestId{arriving.id});
    } else if (!arriving.failure.empty()) {
        if (std::exchange(arriving.failure_told, true)) return;
        locked.tell(event(DecodeEvent::Kind::kCancelled, arriving, arriving.failure));
    } else if (arriving.all_begun && !arriving.asked) {
        arriving.asked = true;
        if (arriving.from_node != fabric_.node()) {
            options_.metrics.kv_transfer_bytes_passive.add(static_cast<double>(arriving.bytes));
        }
        proto::KvMessage message;
        message.mutable_read()->set_id(arriving.id);
        message.mutable_read()->set_attempt(arriving.attempt);
        locked.send(options_.prefill.at(arriving.prefill_replica), std::move(message));
    }
}

void DecodeSideImpl::release(Arriving& arriving, Locked& locked) {
    if (!arriving.blocks.empty()) locked.tell(event(DecodeEvent::Kind::kReleased, arriving));
    arriving_.erase(RequestId{arriving.id});
}

// The prefill side's life has ended: nothing of it is written any more.
void DecodeSideImpl::lose_peer(Arriving& arriving, Locked& locked) {
    if (arriving.ready || arriving.stopped) return;
    arriving.stopped = true;
    if (arriving.cancelled) return settle(arriving, locked);
    locked.tell(event(DecodeEvent::Kind::kCancelled, arriving,
                      fmt::format("the connection to the prefill host node-{} was lost", arriving.from_node)));
}

void DecodeSideImpl::peer_changed(int node, uint32_t epoch) {
    Locked locked(*this);
    for (auto it = arriving_.begin(); it != arriving_.end();) {
        const auto arriving = (it++)->second;  // lose_peer() may take it out
        if (arriving->from_node == node && arriving->from_epoch != epoch) lose_peer(*arriving, locked);
    }
}

std::unique_ptr<DecodeSide> make_decode_side(DecodeSideOptions options) {
    return std::make_unique<DecodeSideImpl>(std::move(options));
}

}  // namespace aerie::transfer
