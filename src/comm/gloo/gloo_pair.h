// GlooPair: a two-rank Gloo context for one life of one peer.
//
// Gloo is two-sided and its waits block, so a pair has three threads: one that sends what is
// queued, in order, one that receives frames and one that receives payloads. A message is a frame,
// which holds a small payload too, into one of several buffers that the receiver has posted ahead,
// so that no frame waits for a round trip; a larger payload follows as a message of its own, once
// its receiver has said where it goes. Several of these are under way at once. Private to
// comm/gloo.
#pragma once

#include <signal.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/network/pair.h"

namespace gloo::transport {
class Context;
class Device;
class Pair;
class UnboundBuffer;
}  // namespace gloo::transport

namespace aerie::comm {

// While it lives the calling thread gets no SIGPIPE, nor do threads that it starts: Gloo writes to
// connections that the peer may have closed.
class WithoutSigpipe {
  public:
    WithoutSigpipe();
    ~WithoutSigpipe();

  private:
    sigset_t before_;
};

class GlooPair final : public Pair {
  public:
    static Result<std::unique_ptr<Pair>> make(gloo::transport::Device& device, Ports& ports,
                                              int self, int peer, uint32_t peer_epoch);
    ~GlooPair() override;

    const std::string& address() const override { return address_; }
    int event_fd() const override { return event_fd_; }
    Status connect(const std::string& peer_address) override;
    Result<bool> send(int port, const Message& message) override;
    bool progress() override;
    bool arm() override { return true; }
    bool broken() const override { return broken_; }
    bool receives_for(int port) const override;

  private:
    struct Frame {
        int32_t port;
        uint32_t header_bytes;
        uint64_t payload_bytes;
        std::byte header[kMaxHeaderBytes];
    };
    static constexpr size_t kInlineBytes = 16 << 10;  // payloads up to here are part of the frame
    static constexpr size_t kFrameBytes = sizeof(Frame) + kInlineBytes;
    static constexpr int kFramesAhead = 16;
    struct Outgoing {
        Frame frame;
        const std::byte* payload;
        std::atomic<int>* pending;
    };
    using BufferPtr = std::unique_ptr<gloo::transport::UnboundBuffer>;
    static constexpr size_t kPayloadsAhead = 8;
    struct Arriving {  // a payload that has been posted
        Frame frame;
        Receiver* receiver;  // nullptr: refused; it comes all the same
        std::byte* room;
        std::vector<std::byte> nowhere;
        BufferPtr buffer;
    };
    struct Sending {  // a payload that has been posted
        BufferPtr buffer;
        std::atomic<int>* pending;
    };

    GlooPair(Ports& ports, int self, int peer, uint32_t peer_epoch)
        : Pair(peer, peer_epoch), ports_(ports), self_(self) {}
    Status open(gloo::transport::Device& device);
    void break_off(const std::string& why);

    void run_receiver(std::string peer_address);
    void receive();
    void take(const Frame& frame, const std::byte* inline_payload);
    void run_payloads();
    void end(const Arriving& arriving, bool whole);
    void run_sender();
    void send_queue();
    bool send_frame(const Outgoing& out, gloo::transport::UnboundBuffer& frames, std::byte* space);
    bool end_oldest_send();
    // Waits for a buffer; false: the pair ends. Throws where the connection is lost.
    bool wait(gloo::transport::UnboundBuffer& buffer, bool sends);

    Ports& ports_;
    const int self_;
    std::string address_;
    int event_fd_ = -1;
    std::atomic<bool> broken_{false};

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    bool connected_ = false;
    bool stopping_ = false;
    std::deque<Outgoing> queue_;
    std::deque<std::unique_ptr<Arriving>> arriving_;
    std::set<std::pair<gloo::transport::UnboundBuffer*, bool>> waits_;  // true: for a send

    std::shared_ptr<gloo::transport::Context> context_;  // shared with its buffers
    gloo::transport::Pair* link_ = nullptr;              // the context's
    std::deque<Sending> sending_;                        // the sending thread's
    std::thread receiver_, payloads_, sender_;
};

}  // namespace aerie::comm
