#include "transfer/control_message.h"

#include <cstring>
#include <optional>
#include <thread>

#include "base/log.h"

namespace aerie::transfer {
namespace {

// A message holds a prompt at most; what claims to be larger is not one of ours.
constexpr size_t kMaxControlBytes = 64 << 20;

// The header, where it is one of ours.
std::optional<KvHeader> read_header(const comm::Incoming& message) {
    KvHeader header;
    if (message.header_bytes != sizeof(header)) return std::nullopt;
    std::memcpy(&header, message.header, sizeof(header));
    if (header.magic != KvHeader::kMagic) return std::nullopt;
    return header;
}

// 0 where there is none.
uint32_t attempt_of(const proto::KvMessage& message) {
    switch (message.body_case()) {
        case proto::KvMessage::kAnnounce: return message.announce().attempt();
        case proto::KvMessage::kOffer: return message.offer().attempt();
        case proto::KvMessage::kDone: return message.done().attempt();
        case proto::KvMessage::kAck: return message.ack().attempt();
        case proto::KvMessage::kRead: return message.read().attempt();
        case proto::KvMessage::kConfirm: return message.confirm().attempt();
        case proto::KvMessage::kCancel: return message.cancel().attempt();
        case proto::KvMessage::kStopped: return message.stopped().attempt();
        case proto::KvMessage::kRetract: return message.retract().attempt();
        case proto::KvMessage::BODY_NOT_SET: break;
    }
    return 0;
}

}  // namespace

ControlSender::~ControlSender() {
    // The fabric counts down also where the peer has died, so this ends.
    for (const auto& message : in_flight_) {
        while (message->pending.load(std::memory_order_acquire) != 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
}

Status ControlSender::send(comm::Destination to, const proto::KvMessage& message) {
    auto fresh = std::make_unique<InFlight>();
    fresh->bytes = message.SerializeAsString();
    InFlight* sending = fresh.get();
    KvHeader header{};
    {
        std::lock_guard lock(mutex_);
        std::erase_if(in_flight_, [](const auto& old) {
            return old->pending.load(std::memory_order_acquire) == 0;
        });
        // Counted up here as well, so that another thread's sweep does not take it before send().
        sending->pending.store(1, std::memory_order_relaxed);
        in_flight_.push_back(std::move(fresh));
        header.serial = ++serial_;
    }
    header.replica = replica_;
    header.magic = KvHeader::kMagic;
    Status status =
        fabric_->send(to, {.header = &header,
                           .header_bytes = sizeof(header),
                           .payload = reinterpret_cast<const std::byte*>(sending->bytes.data()),
                           .payload_bytes = sending->bytes.size(),
                           .kind = comm::Payload::kOwned,
                           .pending = &sending->pending});
    sending->pending.fetch_sub(1, std::memory_order_release);
    return status;
}

std::byte* Mailbox::accept(const comm::Incoming& message) {
    const auto header = read_header(message);
    if (!header || message.payload_bytes > kMaxControlBytes) {
        log_error("KV message of {} bytes from node-{} dropped: at most {} are expected, with a header of {}",
                  message.payload_bytes, message.node, kMaxControlBytes, sizeof(KvHeader));
        return nullptr;
    }
    auto buffer = std::make_unique<std::byte[]>(message.payload_bytes);
    std::lock_guard lock(mutex_);
    return (arriving_[{message.node, message.epoch, header->replica, header->serial}] = std::move(buffer)).get();
}

void Mailbox::failed(const comm::Incoming& message) {
    const auto header = read_header(message);
    if (!header) return;
    std::lock_guard lock(mutex_);
    arriving_.erase({message.node, message.epoch, header->replica, header->serial});
}

bool Mailbox::delivered(const comm::Incoming& message, const std::byte* payload) {
    const auto header = read_header(message);
    if (!header) return false;
    Letter letter{message.node, message.epoch, header->replica, {}};
    const bool parsed = letter.message.ParseFromArray(payload, static_cast<int>(message.payload_bytes));
    failed(message);  // the bytes are no longer needed
    const bool known = letter.replica >= 0 && letter.replica < static_cast<int>(peers_.size()) &&
                       peers_[letter.replica].node == letter.node;
    if (!parsed || !known) {
        log_error("KV message dropped: {} bytes from replica {} on node-{} that {}", message.payload_bytes,
                  letter.replica, letter.node, parsed ? "does not live there" : "are not a message");
        return false;
    }
    if (const uint32_t attempt = attempt_of(letter.message); attempt < 1 || attempt > kMaxAttempts) {
        log_error("KV message dropped: attempt {} from replica {} on node-{}, expected 1 to {}", attempt,
                  letter.replica, letter.node, kMaxAttempts);
        return false;
    }
    std::lock_guard lock(mutex_);
    letters_.push_back(std::move(letter));
    return true;
}

}  // namespace aerie::transfer
