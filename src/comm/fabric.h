// Fabric: messages between host processes, and between the ranks of one. The contract that every
// backend (local/, ucx/) fulfils; exchange/ and transfer/ are written against it alone.
//
// A message goes to a port (a number that a rank listens on) of a node and carries a small header,
// which the receiver's owner defines, and a payload. Delivery is reliable while the peer lives,
// exactly once, in no promised order. A peer's death loses what was under way, nothing else.
//
// Epochs: each life of a host process has one, larger than the last. A message carries its
// sender's; what comes from a life older than the newest known one is dropped by the fabric.
//
// Connections are pairs: once one side has called set_peer() both can send, and both lose the pair
// together. The other side may so be connected to, and receive, before it has called set_peer().
// A life may lose its connection and get another: each has a number, for this side alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "comm/remote_memory.h"

namespace aerie::comm {

constexpr size_t kMaxHeaderBytes = 128;
constexpr int kMaxPorts = 4096;  // ports are 0 … kMaxPorts - 1
constexpr int kMaxNodes = 256;   // nodes are 0 … kMaxNodes - 1

struct Destination {
    int node;
    int port;
};

struct Incoming {
    int node;                 // sender
    uint32_t epoch;           // sender's life
    const std::byte* header;  // valid during the call only
    size_t header_bytes;
    size_t payload_bytes;
};

// What listens on a port. Called on threads of the fabric, or on the sender's own thread where it
// lives in the same process; calls for one port may overlap. Must not block, must not call the
// fabric (it may wake who does).
class Receiver {
  public:
    virtual ~Receiver() = default;

    // Where the payload shall go (payload_bytes long, left alone until delivered() or failed()), or
    // nullptr to drop the message. Not called for a payload that is lent in place, nor for an empty
    // one: its delivered() has payload nullptr.
    virtual std::byte* accept(const Incoming& message) = 0;

    // The payload is complete at `payload`: what accept() returned, or, lent in place, the sender's
    // memory, which stays as it is until the protocol lets the sender go on.
    virtual void delivered(const Incoming& message, const std::byte* payload) = 0;

    // The payload that accept() gave room for will not come: the sender died on the way. The room
    // may be reused. Follows accept() in place of delivered().
    virtual void failed(const Incoming& message) = 0;
};

enum class Payload {
    kOwned,  // valid until *pending is counted down; the receiver gets a copy
    kLent,   // valid until the receiver answers: within a process it is handed over in place
};

struct Message {
    const void* header;
    size_t header_bytes;  // <= kMaxHeaderBytes; copied before send() returns
    const std::byte* payload = nullptr;
    size_t payload_bytes = 0;
    Payload kind = Payload::kOwned;
    // Counted up by send() and down when the payload's memory may be reused, also where the peer
    // died; may be null for kLent. As it was where send() is done with the payload when it returns,
    // and where it returns an error.
    std::atomic<int>* pending = nullptr;
};

class Fabric {
  public:
    virtual ~Fabric() = default;

    virtual int node() const = 0;
    virtual uint32_t epoch() const = 0;

    // The address that peers need, an opaque string of bytes to be passed to their set_peer().
    virtual std::string address() const = 0;

    // Listens on a port. What comes to a port that nobody listens on is dropped. close() returns
    // when no call of the receiver runs or will come: payloads that it has accepted arrive first,
    // or fail (a peer that does not go on for 2 s is dropped). Not to be called from a receiver.
    virtual void open(int port, Receiver* receiver) = 0;
    virtual void close(int port) = 0;

    // Any thread; does not wait for the peer. An error where the peer is not connected; a peer that
    // dies later is told by on_peer_change().
    virtual Status send(Destination to, const Message& message) = 0;

    // A peer's newest life. Tears the old pair down (nothing of it arrives afterwards) and connects
    // anew. While it is connected the same epoch again changes nothing; after a loss it connects
    // again. The own node is always connected. An error where nobody answers at the address within
    // 5 s, or where that life or a newer one has been dropped.
    virtual Status set_peer(int node, uint32_t epoch, const std::string& address) = 0;
    // That life of the peer, and any before it, is dead as far as it is known: nothing of it
    // arrives any more once this returns, and it cannot connect again. A newer life is not touched.
    // Neither this nor set_peer() may be called from a receiver or a listener, nor holding a lock
    // that one of these takes.
    virtual void drop_peer(int node, uint32_t epoch) = 0;
    // Ends that connection as its loss would: both sides are told, and the same life may connect
    // again. Nothing where it is not the present one. Not from where drop_peer() may not be called.
    virtual void disconnect(int node, uint64_t connection) = 0;
    // The peer's epoch, or 0 while it is not connected. Epochs are 1 or more.
    virtual uint32_t peer_epoch(int node) const = 0;
    // The number of the connection to the peer, larger than any before; 0 while there is none. Who
    // finds the same number twice has missed no loss between.
    virtual uint64_t peer_connection(int node) const = 0;

    // Called, on a thread of the fabric or of who called set_peer or drop_peer, after each change
    // of a peer: connected with a new epoch, or lost (epoch 0). Calls come one at a time, in order.
    // Each call adds a listener, which is first told of the peers that are connected. A listener
    // must not block and may send; it lives as long as the fabric.
    virtual void on_peer_change(std::function<void(int node, uint32_t epoch)> listener) = 0;

    // One-sided access (remote_memory.h). Any thread, but not from a receiver.
    //
    // Lets peers that have the key read and write [base, base + bytes) until revoke(). The memory
    // may be part of a larger mapping; registering it twice is allowed.
    virtual Result<OwnRegion> register_memory(std::byte* base, size_t bytes) = 0;
    // The same with memory of the fabric's: zero, and pages that were never written cost nothing.
    // Between processes of one machine peers copy to and from it themselves, which is the fastest,
    // where the backend can share memory. Freed by revoke(), or with the fabric. A card's is reached by
    // hosts of this machine alone, whatever the backend. Between processes revoke() only keeps peers from
    // attaching and asking for more of it: no copy under way is ended, so that it stays this fabric's, and
    // nobody else's, until the fabric ends.
    virtual Result<OwnRegion> allocate_memory(size_t bytes, Device device = Device::kCpu) = 0;
    // Returns when nothing accesses the region or will; a peer that does not let go of it for 2 s
    // is dropped. Its transfers that were under way end as failed or done. Not from a listener. An
    // unknown id is ignored.
    virtual void revoke(uint32_t region_id) = 0;
    // A peer's region by its key, for as long as the present connection lasts: what is begun after
    // its loss is refused, also where the same life has come back. Own keys are allowed. An error
    // where it is no key, or its owner's life is not the connected one.
    virtual Result<RemoteRegion> attach(const std::string& key) = 0;
    // Writes the pieces to, or reads them from, the peer's region. Does not wait for the peer; the
    // pieces are copied, the local memory is the fabric's until done. `done` gets ok when all of it
    // is complete: read, or written and visible to the owner, so that a message sent from then on
    // is delivered after the data. Transfers have no order among each other, nor with messages sent
    // before. It gets an error where the peer is lost or has revoked the region; then any part may
    // have been written. No pieces, or empty ones, are done at once.
    // An error is returned where nothing has begun: the region's life is not connected, or a piece
    // is outside of it (the text names both); `done` is not called then.
    Status put(const RemoteRegion& region, std::span<const Piece> pieces, TransferDone done) {
        return transfer(Access::kPut, region, pieces, std::move(done));
    }
    Status get(const RemoteRegion& region, std::span<const Piece> pieces, TransferDone done) {
        return transfer(Access::kGet, region, pieces, std::move(done));
    }
    virtual Status transfer(Access access, const RemoteRegion& region,
                            std::span<const Piece> pieces, TransferDone done) = 0;
};

// All hosts that live in one process find each other here (--in-process, tests).
class LocalNetwork;
std::shared_ptr<LocalNetwork> make_local_network();

// A host of a LocalNetwork. shared_ptr: the network outlives each of its hosts.
std::unique_ptr<Fabric> make_local_fabric(std::shared_ptr<LocalNetwork> network, int node,
                                          uint32_t epoch);

struct NetworkOptions {
    int node = 0;
    uint32_t epoch = 1;
    // The address of this machine at which peers reach this host, a name or a number. Only this
    // address is listened on. Hosts of one machine need no more than the default.
    std::string host = "127.0.0.1";
    int first_port = 0;  // listening ports are in [first_port, last_port], gloo's apart; 0: any
    int last_port = 0;
    // UCX only: as UCX_TLS, e.g. "tcp"; empty: System V shared memory, CMA and TCP.
    std::string transports = {};
    std::string devices = {};  // UCX only: as UCX_NET_DEVICES; empty: the interface of `host`
};
// A host process on its own: UCX active messages to other processes, pointers within. Loads UCX and
// sets its environment, so to be called while the process has no threads that read theirs.
Result<std::unique_ptr<Fabric>> make_ucx_fabric(const NetworkOptions& options);
// The same over Gloo: TCP, a two-rank context for each pair of hosts.
Result<std::unique_ptr<Fabric>> make_gloo_fabric(const NetworkOptions& options);

// Two fabrics of one host as one: messages to KV ports (port_numbers.h) and one-sided access go over
// `kv`, all others over `exchange`. A peer is connected while it is on both: where one half is lost
// the other is ended, and the loss is told when both are gone.
std::unique_ptr<Fabric> make_split_fabric(std::unique_ptr<Fabric> exchange,
                                          std::unique_ptr<Fabric> kv);

}  // namespace aerie::comm
