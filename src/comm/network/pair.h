// What a network backend provides to NetworkFabric: pairs, and memory that peers may reach
// themselves. Private to comm/.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "comm/fabric.h"
#include "comm/ports.h"
#include "comm/regions.h"

namespace aerie::comm {

// The connection to one life of one peer. Not thread-safe: the fabric holds the peer's lock around
// every call, but for the destructor and what is said to be of any thread. Receivers are called
// from progress(), from the destructor, or on threads of the pair's own.
class Pair {
  public:
    Pair(int peer, uint32_t peer_epoch) : peer_(peer), peer_epoch_(peer_epoch) {}
    // Whatever is under way has ended when it returns: payloads half received are failed(), pending
    // counters are counted down, and nothing of the peer arrives any more.
    virtual ~Pair() = default;
    Pair(const Pair&) = delete;
    Pair& operator=(const Pair&) = delete;

    int peer() const { return peer_; }
    uint32_t peer_epoch() const { return peer_epoch_; }

    virtual const std::string& address() const = 0;  // for the peer's connect()
    virtual int event_fd() const = 0;                // readable: progress() is due
    // Does not wait for the peer.
    virtual Status connect(const std::string& peer_address) = 0;

    // true: done with the payload; false: under way, and ends by itself or by progress().
    virtual Result<bool> send(int port, const Message& message) = 0;
    virtual bool progress() = 0;  // whether anything happened
    virtual bool arm() = 0;       // event_fd() will tell of the next event; false: progress() first
    virtual bool broken() const = 0;  // the connection has been given up
    // A payload that the port's receiver has accepted is under way.
    virtual bool receives_for(int port) const = 0;

    // The peer's region in this process's memory, until the pair ends; nullptr where that cannot
    // be. `extra` is what the peer's Network::allocate() gave.
    virtual std::byte* map(const KeyContent&) { return nullptr; }

    // Accesses to mapped regions that run on other threads, without the peer's lock.
    std::atomic<int> accesses{0};
    std::atomic<bool> lost{false};  // they shall end

  private:
    const int peer_;
    const uint32_t peer_epoch_;
};

class Network {
  public:
    virtual ~Network() = default;
    virtual const char* name() const = 0;
    // What comes is delivered to `ports` as from `peer` with `peer_epoch`.
    virtual Result<std::unique_ptr<Pair>> make_pair(Ports& ports, int peer,
                                                    uint32_t peer_epoch) = 0;

    struct Memory {
        std::byte* base = nullptr;  // nullptr: the network has none that peers could map
        std::string extra;          // for their Pair::map()
    };
    // Any thread.
    virtual Result<Memory> allocate(size_t) { return Memory{}; }
    virtual void free(std::byte*) {}
};

}  // namespace aerie::comm
