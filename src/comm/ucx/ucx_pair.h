// UcxPair: a worker and an endpoint of its own for one life of one peer.
//
// Why a worker each. The shared-memory transport has one receive queue a worker that all peers
// write to. A peer that is killed between taking a place in it and filling it stops the queue for
// good, for everybody. With a worker each it stops its own, which goes down with it; and once the
// worker is destroyed it is certain that nothing of the peer's old life can arrive.
//
// Receivers are called from progress() and from the destructor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/network/pair.h"
#include "comm/ucx/library.h"

namespace aerie::comm {

class UcxPair final : public Pair {
  public:
    // Payloads up to here are copied through the transport's own segments, larger ones are fetched
    // by the receiver once it has said where they go. UCX keeps lengths of segments in 16 bits.
    static constexpr size_t kEagerBytes = 32 << 10;
    static constexpr size_t kSegmentBytes = kEagerBytes + 1024;
    static_assert(kSegmentBytes < 1 << 16);

    static Result<std::unique_ptr<Pair>> make(const Ucx& ucx, ucp_context_h context, Ports& ports,
                                              int peer, uint32_t peer_epoch);
    ~UcxPair() override;

    const std::string& address() const override { return address_; }
    int event_fd() const override { return event_fd_; }
    Status connect(const std::string& peer_address) override;
    Result<bool> send(int port, const Message& message) override;
    bool progress() override;
    bool arm() override;
    bool broken() const override { return broken_; }
    bool receives_for(int port) const override;
    std::byte* map(const KeyContent& key) override;

  private:
    // What goes before the receiver's header. Both hosts have one byte order.
    struct WireHeader {
        int32_t port;
        uint32_t header_bytes;
        uint64_t payload_bytes;
    };
    // A send or a receive that is under way. Its addresses are UCX's until it ends.
    struct Operation {
        UcxPair* pair;
        size_t place;               // in active_
        std::atomic<int>* pending;  // of a send
        Receiver* receiver;         // of a receive; nullptr: a send
        int port;
        Incoming incoming;
        std::byte* room;
        struct {
            WireHeader wire;
            std::byte header[kMaxHeaderBytes];
        } header;
    };

    UcxPair(const Ucx& ucx, Ports& ports, int peer, uint32_t peer_epoch)
        : Pair(peer, peer_epoch), ucx_(ucx), ports_(ports) {}
    Status open(ucp_context_h context);

    Operation* begin();
    void end(Operation* operation, bool arrived);

    static ucs_status_t on_message(void* self, const void* header, size_t header_bytes, void* data,
                                   size_t length, const ucp_am_recv_param_t* param);
    ucs_status_t message(const WireHeader& wire, const std::byte* header, void* data, size_t length,
                         bool rendezvous);
    void receive(Receiver* receiver, int port, const Incoming& incoming, void* descriptor,
                 std::byte* room);

    const Ucx& ucx_;
    Ports& ports_;
    ucp_worker_h worker_ = nullptr;
    ucp_ep_h endpoint_ = nullptr;
    int event_fd_ = -1;
    std::string address_;
    bool broken_ = false;
    std::vector<ucp_rkey_h> keys_;  // of mapped regions
    std::vector<Operation*> active_;
    std::vector<Operation*> idle_;
    std::vector<std::unique_ptr<Operation>> operations_;
};

}  // namespace aerie::comm
