#include "transfer/control_message.h"

#include <cstring>
#include <thread>

#include "base/log.h"

namespace aerie::transfer {
namespace {

// A message holds a prompt at most; what claims to be larger is not one of ours.
constexpr size_t kMaxControlBytes = 64 << 20;

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
    header.kind = MessageKind::kControl;
    header.replica = replica_;
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

std::byte* ControlReceiver::accept(const comm::Incoming& message, const KvHeader& header) {
    if (message.payload_bytes > kMaxControlBytes) {
        log_error("KV message of {} bytes from node-{} dropped: at most {} are expected",
                  message.payload_bytes, message.node, kMaxControlBytes);
        return nullptr;
    }
    auto buffer = std::make_unique<std::byte[]>(message.payload_bytes);
    std::lock_guard lock(mutex_);
    return (arriving_[key(message, header)] = std::move(buffer)).get();
}

void ControlReceiver::failed(const comm::Incoming& message, const KvHeader& header) {
    std::lock_guard lock(mutex_);
    arriving_.erase(key(message, header));
}

std::optional<proto::KvMessage> ControlReceiver::delivered(const comm::Incoming& message,
                                                           const KvHeader& header,
                                                           const std::byte* payload) {
    proto::KvMessage parsed;
    const bool good = parsed.ParseFromArray(payload, static_cast<int>(message.payload_bytes));
    failed(message, header);  // the bytes are no longer needed
    if (!good) {
        log_error("KV message from node-{} dropped: {} bytes that are not one", message.node,
                  message.payload_bytes);
        return std::nullopt;
    }
    return parsed;
}

std::optional<KvHeader> read_header(const comm::Incoming& message) {
    KvHeader header;
    if (message.header_bytes != sizeof(header)) return std::nullopt;
    std::memcpy(&header, message.header, sizeof(header));
    if (header.kind != MessageKind::kControl && header.kind != MessageKind::kPush) return std::nullopt;
    return header;
}

}  // namespace aerie::transfer
