// RemoteAccess: put and get of remote_memory.h by messages, for backends and memory where the
// requester cannot reach the owner's memory itself. Written against the contract of fabric.h and
// one call more; it listens on the fabric's own port. Private to comm/.
//
// A put is one message for each piece, whose payload the owner's fabric puts where it belongs, and
// an answer once all of them have come. A get is one small message for each piece, answered with
// its bytes. One thread answers and ends transfers, since receivers may not send; it exists from
// the first use on and sleeps while nothing is under way.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "comm/fabric.h"
#include "comm/regions.h"

namespace aerie::comm {

class PairedFabric : public Fabric {
  public:
    // As send(), but over that connection alone: an error once it is lost. So nothing of a transfer
    // goes to a life whose connection was lost, and told to be, while the transfer was being sent.
    virtual Status send_over(uint64_t connection, Destination to, const Message& message) = 0;
};

class RemoteAccess final : public Receiver {
  public:
    RemoteAccess(PairedFabric& fabric, Regions& regions) : fabric_(fabric), regions_(regions) {}
    ~RemoteAccess();  // after stop()

    // As Fabric::transfer(); region and pieces have been checked against each other.
    Status start(Access access, const RemoteRegion& region, std::span<const Piece> pieces,
                 TransferDone done);
    // As Fabric::revoke(), of the access by messages.
    void revoke(uint32_t region_id);
    // The peer's connected life is now this one; 0: it is lost.
    void peer_changed(int node, uint32_t epoch);
    // Ends what is under way. No peer is connected any more.
    void stop();

    std::byte* accept(const Incoming& message) override;
    void delivered(const Incoming& message, const std::byte* payload) override;
    void failed(const Incoming& message) override;

  private:
    enum class Kind : uint32_t { kPut, kPutDone, kPutRefused, kGet, kGetData, kGetRefused };
    struct Frame {
        Kind kind;
        uint32_t to_epoch;  // the life that it is meant for
        uint64_t transfer;  // the requester's number
        uint32_t region;
        uint32_t num_pieces;
        uint32_t piece;
        uint64_t offset;
        uint64_t bytes;
    };
    // Of the requester.
    struct Transfer {
        Access access;
        RemoteRegion region;
        std::vector<Piece> pieces;
        TransferDone done;
        std::atomic<int> pending{0};  // payloads of ours that the fabric still reads
        uint32_t num_arrived = 0;     // pieces of a get
        int num_arriving = 0;         // payloads that the fabric still writes
        bool sending = true;
        std::atomic<bool> over{false};  // changed with the lock held
        Status result;
        bool quiet() const { return over && !sending && num_arriving == 0 && pending == 0; }
    };
    // Of the owner: a put whose pieces come.
    struct Arrival {
        uint32_t num_pieces = 0;
        bool refused = false;
    };
    // Of the owner: something to be sent; for a get's data, what is being read until pending is 0.
    struct Answer {
        int node;
        uint32_t epoch;
        Frame frame;
        std::atomic<int> pending{0};
    };
    // Of the owner: a payload that comes into a region.
    struct Write {
        int node;
        uint32_t epoch;
        uint32_t region;
    };
    using ArrivalKey = std::tuple<int, uint32_t, uint64_t>;  // node, epoch, transfer

    static bool read(const Incoming& message, Frame& frame);
    Transfer* find(const Incoming& message, uint64_t transfer);
    void end(Transfer& transfer, Status result);
    void count_put(const Incoming& message, const Frame& frame, bool refused);
    void answer(const Incoming& to, const Frame& frame, Kind kind);
    void run();
    std::vector<std::unique_ptr<Transfer>> take_quiet();
    void reply(std::unique_ptr<Answer> answer);
    bool reap_replies();

    PairedFabric& fabric_;
    Regions& regions_;
    std::once_flag started_;
    std::thread thread_;

    std::mutex mutex_;  // never held while the fabric is called
    std::condition_variable news_;
    bool stop_ = false;
    uint64_t next_transfer_ = 1;
    std::map<uint64_t, std::unique_ptr<Transfer>> transfers_;
    std::map<ArrivalKey, Arrival> arrivals_;
    std::vector<Write> writes_;
    std::deque<std::unique_ptr<Answer>> answers_;   // to be sent
    std::vector<std::unique_ptr<Answer>> replies_;  // being sent; changed by the thread alone
};

}  // namespace aerie::comm
