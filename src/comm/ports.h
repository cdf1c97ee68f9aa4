// Ports: who listens on which port of one host. Shared by the backends; private to comm/.
//
// enter() and leave() are two atomic additions on a word of the port's own, so that ranks that send
// to different ports never meet.
#pragma once

#include <atomic>
#include <memory>

#include "comm/fabric.h"

namespace aerie::comm {

// One more port than users have: the fabric's own, for one-sided access by messages.
constexpr int kAccessPort = kMaxPorts;

class Ports {
  public:
    Ports() : slots_(new Slot[kMaxPorts + 1]) {}

    void open(int port, Receiver* receiver);
    // No enter() succeeds from now on. The port may be opened again after drained().
    void shut(int port);
    // Waits until every enter() has been left, at most limit_s seconds; whether it has.
    bool drained(int port, double limit_s) const;

    // The receiver, to be called until leave(); nullptr where nobody listens: then no leave().
    Receiver* enter(int port);
    void leave(int port);

  private:
    struct alignas(64) Slot {
        std::atomic<Receiver*> receiver{nullptr};
        std::atomic<int> calls{0};
    };
    std::unique_ptr<Slot[]> slots_;  // [kMaxPorts + 1]
};

// Hands a message to a port of this process on the calling thread: lent payloads in place, owned
// ones copied to where accept() says.
void deliver_in_process(Ports& ports, int port, const Incoming& message, const std::byte* payload,
                        Payload kind);

// Waits until `calls` is 0, at most limit_s seconds; whether it is. For counts that reach 0 soon:
// looks again after a few microseconds, so that who counts down need not notify.
bool wait_for_zero(const std::atomic<int>& calls, double limit_s);

}  // namespace aerie::comm
