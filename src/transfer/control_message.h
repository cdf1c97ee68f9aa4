// proto::KvMessage as the payload of a fabric message.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
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

// Collects the payloads of control messages while they arrive. Any thread.
class ControlReceiver {
  public:
    std::byte* accept(const comm::Incoming& message, const KvHeader& header);
    void failed(const comm::Incoming& message, const KvHeader& header);
    // The message, or nothing where the bytes are not one.
    std::optional<proto::KvMessage> delivered(const comm::Incoming& message,
                                              const KvHeader& header, const std::byte* payload);

  private:
    using Key = std::tuple<int, uint32_t, int, uint64_t>;  // node, epoch, replica, serial
    static Key key(const comm::Incoming& message, const KvHeader& header) {
        return {message.node, message.epoch, header.replica, header.serial};
    }
    std::mutex mutex_;
    std::map<Key, std::unique_ptr<std::byte[]>> arriving_;
};

// The header, where it has the right size and a known kind.
std::optional<KvHeader> read_header(const comm::Incoming& message);

}  // namespace aerie::transfer
