// What the contract's tests receive with and send.
#include <algorithm>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "comm/fabric_contract.h"

namespace aerie::comm {

std::byte* Inbox::accept(const Incoming& message) {
    if (refuse) {
        ++num_refused;
        return nullptr;
    }
    ++num_accepted;
    std::lock_guard lock(mutex_);
    return rooms_.emplace_back(new std::byte[message.payload_bytes]).get();
}

void Inbox::delivered(const Incoming& message, const std::byte* payload) {
    if (keep) {
        const auto* header = reinterpret_cast<const char*>(message.header);
        Mail mail{message.node, message.epoch, std::string(header, message.header_bytes),
                  std::vector<std::byte>(payload, payload + message.payload_bytes), payload};
        std::lock_guard lock(mutex_);
        mail_.push_back(std::move(mail));
    }
    ++num_delivered;
}

void Inbox::failed(const Incoming&) { ++num_failed; }

bool Inbox::wait(size_t count) {
    return eventually([&] { return num_delivered >= count; });
}

Inbox::Mail Inbox::take() {
    std::lock_guard lock(mutex_);
    Mail mail = std::move(mail_.back());
    mail_.pop_back();
    return mail;
}

std::vector<Inbox::Mail> Inbox::mail() const {
    std::lock_guard lock(mutex_);
    return mail_;
}

bool eventually(const std::function<bool()>& holds, double limit_s) {
    const TimePoint deadline = after(limit_s);
    while (!holds()) {
        if (Clock::now() > deadline) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
}

std::vector<std::byte> pattern(size_t size, uint32_t seed) {
    std::vector<std::byte> bytes(size);
    uint64_t state = seed + 1;
    for (size_t i = 0; i < size; i += sizeof(state)) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        std::memcpy(bytes.data() + i, &state, std::min(sizeof(state), size - i));
    }
    return bytes;
}

bool same(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

Message text(const std::string& header) {
    return {.header = header.data(), .header_bytes = header.size()};
}

Message with_payload(const std::string& header, const std::vector<std::byte>& payload,
                     std::atomic<int>* pending, Payload kind) {
    return {.header = header.data(),
            .header_bytes = header.size(),
            .payload = payload.data(),
            .payload_bytes = payload.size(),
            .kind = kind,
            .pending = pending};
}

}  // namespace aerie::comm
