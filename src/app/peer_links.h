// PeerLinks: keeps a host's fabric connected to the peers that the launcher names, and exchanges a
// first message with each life of them, so that "ready" means that messages really go both ways.
//
// One thread of its own: connecting may take seconds where a peer has just died.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/fabric.h"
#include "control/host_link.h"

namespace aerie {

class PeerLinks final : public control::PeerListener, public comm::Receiver {
  public:
    // Both must outlive this. The link is told of each change of the peers that are reached.
    PeerLinks(comm::Fabric& fabric, control::HostLink& link);
    ~PeerLinks();

    void peers(const std::vector<control::Peer>& peers) override;

  private:
    // What is sent: the sender has heard the receiver's life; it wants an answer, since it does not
    // know yet that it has been heard.
    struct Hello {
        uint8_t heard;
        uint8_t answer;
    };
    // How far the greeting of one life of a peer has come.
    struct Greeting {
        uint32_t epoch = 0;
        bool heard = false;      // its message has come
        bool confirmed = false;  // it has had ours
        bool answer_due = false;
    };

    std::byte* accept(const comm::Incoming&) override { return nullptr; }
    void delivered(const comm::Incoming& message, const std::byte* payload) override;
    void failed(const comm::Incoming&) override {}

    void run();
    bool connect(const std::vector<control::Peer>& peers);
    bool greet(const std::vector<control::Peer>& peers, bool again);
    void report(const std::vector<control::Peer>& peers);

    comm::Fabric& fabric_;
    control::HostLink& link_;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<control::Peer> wanted_;
    std::map<int, Greeting> greetings_;  // by node
    bool news_ = false;
    bool stopping_ = false;

    // The thread's own.
    std::vector<control::ReachedPeer> reported_;
    std::map<int, uint32_t> warned_;  // by node: the life that could not be reached
    std::thread thread_;
};

}  // namespace aerie
