// proto::KvMessage as the payload of a fabric message.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "comm/fabric.h"
#include "proto/kv.pb.h"
#include "transfer/layout.h"

namespace aerie::transfer {

// Sends control messages and keeps their bytes until they are on their way. Any thread.
class ControlSender {
  public:
    ControlSender(comm::Fabric* fabric, int replica) : fabric_(fabric), replica_(replica) {}
    ~ControlSender();  // waits for what is under way
    Status send(comm::Destination to, const proto::KvMessage& message);

  private:
    struct InFlight {
        std::string bytes;
        std::atomic<int> pending{0};
    };
    comm::Fabric* const fabric_;
    const int replica_;
    std::mutex mutex_;
    uint64_t serial_ = 0;
    std::vector<std::unique_ptr<InFlight>> in_flight_;
};

// A control message that has come.
struct Letter {
    int node;
    uint32_t epoch;
    int replica;  // the sender's; it lives on that node
    proto::KvMessage message;
};

// Collects control messages while they arrive, and keeps them until they are taken. What is not a
// message of one of the peers is logged and dropped. Any thread.
class Mailbox {
  public:
    explicit Mailbox(std::vector<comm::Destination> peers) : peers_(std::move(peers)) {}

    std::byte* accept(const comm::Incoming& message);
    void failed(const comm::Incoming& message);
    // Whether there is a letter more.
    bool delivered(const comm::Incoming& message, const std::byte* payload);

    std::vector<Letter> take() {
        std::lock_guard lock(mutex_);
        return std::exchange(letters_, {});
    }

  private:
    using Key = std::tuple<int, uint32_t, int, uint64_t>;  // node, epoch, replica, serial

    const std::vector<comm::Destination> peers_;  // [replica of the other role]
    std::mutex mutex_;
    std::map<Key, std::unique_ptr<std::byte[]>> arriving_;
    std::vector<Letter> letters_;
};

}  // namespace aerie::transfer
