#include "comm/ports.h"

#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/clock.h"

namespace aerie::comm {

void Ports::open(int port, Receiver* receiver) {
    CHECK(port >= 0 && port <= kMaxPorts, "port {}, expected 0 to {}", port, kMaxPorts - 1);
    Receiver* nobody = nullptr;
    const bool was_free = slots_[port].receiver.compare_exchange_strong(nobody, receiver);
    CHECK(was_free, "port {} is open already", port);
}

void Ports::shut(int port) {
    CHECK(port >= 0 && port <= kMaxPorts, "port {}, expected 0 to {}", port, kMaxPorts - 1);
    slots_[port].receiver.store(nullptr);
}

bool Ports::drained(int port, double limit_s) const {
    return wait_for_zero(slots_[port].calls, limit_s);
}

Receiver* Ports::enter(int port) {
    if (port < 0 || port > kMaxPorts) return nullptr;
    // Sequentially consistent on both sides: either this sees that shut() has been, or drained()
    // sees this call.
    slots_[port].calls.fetch_add(1);
    Receiver* receiver = slots_[port].receiver.load();
    if (receiver == nullptr) slots_[port].calls.fetch_sub(1);
    return receiver;
}

void Ports::leave(int port) { slots_[port].calls.fetch_sub(1); }

void deliver_in_process(Ports& ports, int port, const Incoming& message, const std::byte* payload,
                        Payload kind) {
    Receiver* receiver = ports.enter(port);
    if (receiver == nullptr) return;
    if (message.payload_bytes == 0) {
        receiver->delivered(message, nullptr);
    } else if (kind == Payload::kLent) {
        receiver->delivered(message, payload);
    } else if (std::byte* room = receiver->accept(message)) {
        std::memcpy(room, payload, message.payload_bytes);
        receiver->delivered(message, room);
    }
    ports.leave(port);
}

bool wait_for_zero(const std::atomic<int>& calls, double limit_s) {
    if (calls.load() == 0) return true;
    const TimePoint deadline = after(limit_s);
    while (calls.load() != 0) {
        if (Clock::now() >= deadline) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return true;
}

}  // namespace aerie::comm
