// One-sided access to a peer's memory: what Fabric's register_memory(), attach(), put(), get() and
// revoke() work on. The owner registers a region and gives its key to peers in messages; a peer
// then writes or reads parts of it while the owner goes on with its own work.
//
// When is a block safe to reuse? No write of a peer's dropped life lands once drop_peer() has
// returned or on_peer_change() has told of its loss, and none into a region once revoke() has
// returned. How that is kept:
//   local     the requester copies inside a counted call of its link; both wait for the count.
//   messages  (gloo; ucx between machines, or into memory that was not allocated here) the owner's
//             own fabric puts what comes into the region, checked against the region and the
//             sender's life; a connection that is gone brings nothing.
//   mapped    (ucx on one machine, memory from allocate_memory()) the requester writes into this
//             process's memory itself. It lets go of it before it closes the socket of the pair,
//             and the kernel closes the socket of a process that died only when its last thread has
//             ended; so the end of the socket is the proof, and the fabric waits for it before it
//             tells of the loss of a peer whose kernel is this one's. revoke() unmaps the memory here:
//             late writes reach no memory that anybody uses. A peer that is merely stopped cannot give the proof within the limit
//             (1 s, logged): its supervisor must have killed and reaped it before drop_peer().
//   card      (between processes of one machine, memory of a card from allocate_memory()) the requester
//             copies on a queue of its own and waits for it. Copies of a process that died may be under
//             way until the kernel has taken its card away, after its sockets; so the end of the process
//             itself is the proof, and none is needed of one that has said farewell. revoke() ends no
//             copy: late writes reach memory that stays the fabric's, and nobody else's, to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/device.h"

namespace aerie::comm {

// A region that this host has registered.
struct OwnRegion {
    uint32_t id = 0;
    std::byte* base = nullptr;
    std::string key;  // opaque bytes, at most kMaxKeyBytes, for peers' attach()
};
constexpr size_t kMaxKeyBytes = 1024;

// A peer's region. A value; holds no resource: what the fabric keeps for it goes with the peer.
struct RemoteRegion {
    int node = -1;       // of the owner
    uint32_t epoch = 0;  // the owner's life; no other one is meant
    uint32_t id = 0;
    uint64_t bytes = 0;
    uint64_t connection = 0;  // over which it was attached; no other one is meant
    bool mapped = false;      // the requester copies itself; else the owner's fabric does, by messages
    Device device = Device::kCpu;  // where it lies; a card's is always mapped
};

// One contiguous piece of a transfer. Neighbours in both memories are joined by the fabric.
struct Piece {
    uint64_t offset;   // in the peer's region
    std::byte* local;  // put: only read
    size_t bytes;
};

enum class Access { kPut, kGet };

// Called exactly once for a transfer that has begun: on a thread of the fabric, or on the caller's
// before put() or get() returns. Must not block nor take a lock that a caller of put() or get()
// holds; may call send(), put() and get().
using TransferDone = std::function<void(Status)>;

// Whether each piece lies in the region; the error names the first that does not.
Status check_pieces(const RemoteRegion& region, std::span<const Piece> pieces);
// Without empty pieces, neighbours joined; in the order given.
std::vector<Piece> joined(std::span<const Piece> pieces);
uint64_t total_bytes(std::span<const Piece> pieces);

}  // namespace aerie::comm
