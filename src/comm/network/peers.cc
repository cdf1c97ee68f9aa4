// Who is connected: the part of the fabric that makes, greets and loses peers. All of it runs on
// the fabric's thread.
#include <sys/epoll.h>

#include <algorithm>

#include "base/log.h"
#include "comm/network/network_fabric.h"

namespace aerie::comm {
namespace {

constexpr double kProofLimitS = 1;
constexpr int kProofSliceMs = 5;
constexpr double kAccessLimitS = 60;

}  // namespace

void NetworkFabric::begin_connect(Command* command) {
    const int node = command->node;
    Slot& slot = slots_[node];
    if (slot.epoch == command->epoch && slot.connection && slot.connection.ended()) lose(node);
    if (slot.epoch != 0 && slot.epoch == command->epoch) return finish(command, {});
    if (command->epoch <= slot.fenced)
        return finish(command, error("node-{} with epoch {} has been dropped, expected an epoch "
                                     "above {}",
                                     node, command->epoch, slot.fenced));
    slot.fenced = command->epoch - 1;
    if (slot.epoch != 0) lose(node);
    if (slot.attempt && slot.attempt->epoch == command->epoch) {
        slot.attempt->waiting.push_back(command);
        return;
    }
    if (slot.attempt) give_up(node, error("node-{} has a newer epoch {}", node, command->epoch));

    auto connection = Connection::connect_to(command->address);
    if (!connection) return finish(command, connection.error());
    auto pair = network_->make_pair(ports_, node, command->epoch);
    if (!pair) return finish(command, pair.error());
    slot.attempt = std::make_unique<Attempt>(Attempt{command->epoch,
                                                     command->address,
                                                     after(kHandshakeLimitS),
                                                     std::move(*pair),
                                                     std::move(*connection),
                                                     {command}});
    Attempt& attempt = *slot.attempt;
    attempt.connection.say(
        {Answer::kHello, this->node(), epoch(), node, attempt.epoch, attempt.pair->address()});
    // Edge-triggered: it is writable all the time once it is connected.
    watch(attempt.connection.fd(), tag(Source::kAttempt, node), EPOLLIN | EPOLLOUT | EPOLLET);
}
void NetworkFabric::go_on(int node) {
    Attempt* attempt = slots_[node].attempt.get();
    if (attempt == nullptr || !attempt->connection) return;
    auto flushed = attempt->connection.flush();
    auto heard = flushed ? attempt->connection.hear() : flushed.error();
    if (!heard)
        return give_up(node, error("node-{} with epoch {} does not answer at {}: {}", node,
                                   attempt->epoch, attempt->address, heard.message()));
    if (*heard) answered(node, **heard);
}
void NetworkFabric::answered(int node, const Greeting& greeting) {
    Attempt& attempt = *slots_[node].attempt;
    const auto who =
        fmt::format("node-{} with epoch {} at {}", node, attempt.epoch, attempt.address);
    switch (greeting.answer) {
        case Answer::kWelcome: {
            if (greeting.from_node != node || greeting.from_epoch != attempt.epoch) break;
            const Status connected = attempt.pair->connect(greeting.pair_address);
            if (!connected) return give_up(node, connected.error());
            unwatch(attempt.connection.fd());
            return establish(node, std::move(attempt.pair), std::move(attempt.connection));
        }
        case Answer::kDuplicate:  // the other direction will do
            attempt.connection = Connection();
            attempt.pair.reset();
            return;
        case Answer::kFenced:
            return give_up(node, error("{} has dropped node-{} with epoch {}, or knows a newer one",
                                       who, this->node(), epoch()));
        case Answer::kNoPair:
            return give_up(node, error("{} cannot open {}", who, network_->name()));
        case Answer::kStranger:
        case Answer::kHello:
            break;
    }
    give_up(node, error("another host than {} answers there", who));
}
void NetworkFabric::give_up(int node, Status why) {
    for (Command* command : slots_[node].attempt->waiting) finish(command, why);
    slots_[node].attempt.reset();
}
void NetworkFabric::expire() {
    if (timeout_ms() < 0) return;
    const TimePoint now = Clock::now();
    std::erase_if(visitors_, [&](const auto& entry) { return entry.second.deadline < now; });
    for (int node = 0; node < kMaxNodes; ++node) {
        const Attempt* attempt = slots_[node].attempt.get();
        if (attempt != nullptr && attempt->deadline < now)
            give_up(node, error("node-{} with epoch {} has not answered at {} for {} s", node,
                                attempt->epoch, attempt->address, kHandshakeLimitS));
    }
}
void NetworkFabric::greet(uint32_t id) {
    const auto found = visitors_.find(id);
    if (found == visitors_.end()) return;
    auto heard = found->second.connection.hear();
    if (heard && !*heard) return;  // not all of it yet
    Connection connection = std::move(found->second.connection);
    visitors_.erase(found);
    unwatch(connection.fd());
    if (!heard) return log_debug("a visitor left: {}", heard.message());
    const Greeting& hello = **heard;
    Answer answer = judge(hello);
    if (answer == Answer::kWelcome) {
        if (welcome(connection, hello)) return;
        answer = Answer::kNoPair;
    }
    connection.say({answer, node(), epoch(), hello.from_node, hello.from_epoch, ""});
    (void)connection.flush();
}
Answer NetworkFabric::judge(const Greeting& hello) {
    const int node = hello.from_node;
    if (hello.answer != Answer::kHello || !is_node(node) || node == this->node() ||
        hello.to_node != this->node() || hello.to_epoch != epoch())
        return Answer::kStranger;
    Slot& slot = slots_[node];
    if (hello.from_epoch <= slot.fenced) return Answer::kFenced;
    if (slot.epoch == hello.from_epoch) {
        if (!slot.connection.ended()) return Answer::kDuplicate;
        lose(node);
    }
    // Both connect at once: the lower node's attempt is the one that counts.
    const Attempt* attempt = slot.attempt.get();
    if (attempt && attempt->epoch == hello.from_epoch && attempt->pair && this->node() < node)
        return Answer::kDuplicate;
    return Answer::kWelcome;
}
bool NetworkFabric::welcome(Connection& connection, const Greeting& hello) {
    const int node = hello.from_node;
    Slot& slot = slots_[node];
    if (slot.epoch != 0) lose(node);
    if (slot.attempt && slot.attempt->epoch != hello.from_epoch)
        give_up(node, error("node-{} has a newer epoch {}", node, hello.from_epoch));
    auto pair = network_->make_pair(ports_, node, hello.from_epoch);
    if (!pair || !(*pair)->connect(hello.pair_address)) {
        log_warning("node-{} with epoch {} cannot be connected: {}", node, hello.from_epoch,
                    pair ? "its address does not fit" : pair.message());
        return false;
    }
    connection.say(
        {Answer::kWelcome, this->node(), epoch(), node, hello.from_epoch, (*pair)->address()});
    auto flushed = connection.flush();
    if (!flushed || !*flushed) return true;  // it has gone already: nothing to say
    establish(node, std::move(*pair), std::move(connection));
    return true;
}
void NetworkFabric::establish(int node, std::unique_ptr<Pair> pair, Connection connection) {
    Slot& slot = slots_[node];
    const uint32_t peer_epoch = pair->peer_epoch();
    slot.fenced = peer_epoch - 1;
    slot.fruitless = 0;
    slot.connection = std::move(connection);
    watch(slot.connection.fd(), tag(Source::kPeer, node), EPOLLIN | EPOLLRDHUP);
    watch(pair->event_fd(), tag(Source::kWorker, node), EPOLLIN);
    {
        std::lock_guard lock(slot.mutex);
        slot.pair = std::move(pair);
        slot.watched = slot.connection.process_watched();
        slot.look = false;  // a sender of the last connection may have left it set
        slot.number = next_number_++;
        slot.epoch = peer_epoch;
    }
    connected_.push_back(node);
    ready_.push_back(node);  // to be armed
    tell(node, peer_epoch);
    if (slot.attempt) {
        for (Command* command : slot.attempt->waiting) finish(command, {});
        slot.attempt.reset();
    }
}
// Ends the pair, and only then this side of the socket: its end tells the peer that nothing of this
// process writes into its memory any more. false: there is no pair.
bool NetworkFabric::leave(int node) {
    Slot& slot = slots_[node];
    std::map<uint32_t, Slot::Mapped> mapped;  // until nobody copies to or from it
    std::unique_ptr<Pair> pair;
    {
        std::lock_guard lock(slot.mutex);
        pair = std::move(slot.pair);
        slot.epoch = 0;
        slot.number = 0;
        mapped.swap(slot.mapped);
    }
    if (pair == nullptr) return false;
    unwatch(pair->event_fd());
    end_pair(std::move(pair));
    mapped.clear();
    slot.connection.end_own_side();
    return true;
}
// Who may have memory of this process mapped is waited for: the end of its side tells us in turn.
// Others that leave meanwhile do not wait for this wait.
void NetworkFabric::lose(int node) {
    const uint32_t lost_epoch = slots_[node].epoch;
    if (!leave(node)) return;
    std::vector<int> left{node};
    Connection& connection = slots_[node].connection;
    const TimePoint deadline = after(kProofLimitS);
    if ((ever_mappable_ || ever_on_card_) && connection.same_machine()) {
        bool ended = connection.ended();
        while (!ended && Clock::now() < deadline) {
            for (const int other : connected_)
                if (slots_[other].connection.ended() && leave(other)) left.push_back(other);
            ended = connection.wait_for_end(kProofSliceMs);
        }
        if (!ended)
            log_error(
                "node-{} with epoch {} does not close its side for {} s: until it is killed it may "
                "write into memory that was allocated here",
                node, lost_epoch, kProofLimitS);
    }
    if (ever_on_card_) await_exits(left, deadline);
    for (const int one : left) {
        slots_[one].connection = Connection();
        std::erase(connected_, one);
        tell(one, 0);
    }
}
// A card goes on with the copies of a process that has died until the kernel has taken it away, which is
// before the process has ended. One that says farewell has waited for its copies.
void NetworkFabric::await_exits(std::span<const int> nodes, TimePoint deadline) {
    for (const int node : nodes) {
        const Connection& connection = slots_[node].connection;
        if (!connection.same_machine() || connection.said_farewell()) continue;
        bool ended = connection.process_ended(0);
        while (!ended && Clock::now() < deadline) ended = connection.process_ended(kProofSliceMs);
        if (!ended)
            log_error("the process of node-{} has not ended within {} s of its connection: until it has, it "
                      "may write into memory of the card that was allocated here",
                      node, kProofLimitS);
    }
}
void NetworkFabric::end_pair(std::unique_ptr<Pair> pair) {
    pair->lost = true;
    const bool idle = wait_for_zero(pair->accesses, kAccessLimitS);
    CHECK(idle, "a copy to or from node-{} has not ended for {} s", pair->peer(), kAccessLimitS);
}
void NetworkFabric::release(int port) {
    for (int node : std::vector<int>(connected_)) {
        bool holds;
        {
            std::lock_guard lock(slots_[node].mutex);
            // Another's loss may have taken it along.
            holds = slots_[node].pair != nullptr && slots_[node].pair->receives_for(port);
        }
        if (!holds) continue;
        log_warning("node-{} does not finish a message to port {}, which is closed: dropped", node,
                    port);
        lose(node);
    }
}

}  // namespace aerie::comm
