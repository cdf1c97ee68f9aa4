#include "app/peer_links.h"

#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/thread.h"
#include "comm/port_numbers.h"

namespace aerie {
namespace {

constexpr double kRetrySeconds = 0.5;

}  // namespace

PeerLinks::PeerLinks(comm::Fabric& fabric, control::HostLink& link)
    : fabric_(fabric), link_(link), thread_([this] { run(); }) {
    fabric_.open(comm::kHelloPort, this);
}

PeerLinks::~PeerLinks() {
    fabric_.close(comm::kHelloPort);
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void PeerLinks::peers(const std::vector<control::Peer>& peers) {
    {
        std::lock_guard lock(mutex_);
        wanted_ = peers;
        news_ = true;
    }
    changed_.notify_all();
}

void PeerLinks::delivered(const comm::Incoming& message, const std::byte*) {
    Hello hello;
    if (message.header_bytes != sizeof hello) return;
    std::memcpy(&hello, message.header, sizeof hello);
    {
        std::lock_guard lock(mutex_);
        Greeting& greeting = greetings_[message.node];
        if (greeting.epoch != message.epoch) greeting = {.epoch = message.epoch};
        greeting.heard = true;
        greeting.confirmed = greeting.confirmed || hello.heard;
        greeting.answer_due = greeting.answer_due || hello.answer;
        news_ = true;
    }
    changed_.notify_all();
}

void PeerLinks::run() {
    set_thread_name("peer-links");
    bool complete = false;  // every wanted peer is connected and has confirmed
    while (true) {
        std::vector<control::Peer> peers;
        bool tick = false;
        {
            std::unique_lock lock(mutex_);
            tick = !changed_.wait_until(lock, after(complete ? 10 * kRetrySeconds : kRetrySeconds),
                                        [&] { return news_ || stopping_; });
            if (stopping_) return;
            news_ = false;
            peers = wanted_;
        }
        complete = connect(peers);
        complete = greet(peers, tick) && complete;
        report(peers);
    }
}

// Drops the dead before it waits for the living. False: some peer is not connected.
bool PeerLinks::connect(const std::vector<control::Peer>& peers) {
    for (const control::Peer& peer : peers) {
        if (peer.epoch != 0) continue;
        // A newer life may have connected before this news of the old one's death was read.
        const uint32_t connected = fabric_.peer_epoch(peer.node);
        if (connected != 0 && connected <= peer.dead_epoch) fabric_.drop_peer(peer.node, connected);
    }
    bool complete = true;
    for (const control::Peer& peer : peers) {
        if (peer.epoch == 0 || fabric_.peer_epoch(peer.node) == peer.epoch) continue;
        const Status connected = fabric_.set_peer(peer.node, peer.epoch, peer.fabric_address);
        if (connected.ok()) continue;
        complete = false;
        const bool first = std::exchange(warned_[peer.node], peer.epoch) != peer.epoch;
        log(first ? LogLevel::kWarning : LogLevel::kDebug,
            "node-{} (epoch {}) cannot be reached yet: {}", peer.node, peer.epoch,
            connected.message());
    }
    return complete;
}

// `again`: nothing has come for a while, so those that have not confirmed are greeted once more.
// False: some have not.
bool PeerLinks::greet(const std::vector<control::Peer>& peers, bool again) {
    bool complete = true;
    for (const control::Peer& peer : peers) {
        if (peer.epoch == 0 || fabric_.peer_epoch(peer.node) != peer.epoch) continue;
        Hello hello;
        {
            std::lock_guard lock(mutex_);
            Greeting& greeting = greetings_[peer.node];
            complete = complete && greeting.confirmed;
            const bool first = greeting.epoch != peer.epoch;
            if (first && greeting.epoch < peer.epoch) greeting = {.epoch = peer.epoch};
            if (!first && !greeting.answer_due && !(again && !greeting.confirmed)) continue;
            greeting.answer_due = false;
            hello = {greeting.heard, !greeting.confirmed};
        }
        const Status sent = fabric_.send({peer.node, comm::kHelloPort}, {&hello, sizeof hello});
        if (!sent) log_debug("no greeting to node-{}: {}", peer.node, sent.message());
    }
    return complete;
}

void PeerLinks::report(const std::vector<control::Peer>& peers) {
    std::vector<control::ReachedPeer> reached;
    {
        std::lock_guard lock(mutex_);
        for (const control::Peer& peer : peers) {
            const auto greeting = greetings_.find(peer.node);
            if (peer.epoch == 0 || greeting == greetings_.end() || !greeting->second.heard ||
                greeting->second.epoch != peer.epoch) {
                continue;
            }
            reached.push_back({peer.node, peer.epoch});
        }
    }
    if (reached == reported_) return;
    reported_ = reached;
    link_.report_reached(std::move(reached));
}

}  // namespace aerie
