// Side: what the two sides of the KV transfer are made of: their port and mailbox, the courier's thread,
// the watch over peers, the events for the leader, and the lock with what is to be done once it is given
// back. Private to transfer/.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/peer_watch.h"
#include "transfer/control_message.h"
#include "transfer/courier.h"

namespace aerie::transfer {

template <typename Event>
class Side : protected comm::Receiver {
  protected:
    // peers: [replica of the other role]
    Side(comm::Fabric& fabric, int port, int replica, std::vector<comm::Destination> peers,
         std::function<void()> notify)
        : fabric_(fabric), sender_(&fabric, replica), port_(port), notify_(std::move(notify)),
          mail_(std::move(peers)) {}
    ~Side() = default;  // after stop()

    // Once who derives is complete.
    void start(const std::string& name) {
        courier_.emplace(name, [this] { return attend(); });
        watch_.emplace(fabric_, [this](int node, uint32_t epoch) { peer_changed(node, epoch); });
        fabric_.open(port_, this);
    }
    // While who derives is complete. Waits for copies under way, which the fabric ends also where a
    // peer has died, and for whoever has told of the end of one; copies(): whether there are some, with
    // the lock held.
    void stop(const std::function<bool()>& copies) {
        fabric_.close(port_);
        courier_.reset();
        const auto copying = [&] {
            std::lock_guard lock(mutex_);
            return copies() || num_locked_ > 0;
        };
        while (copying()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        watch_.reset();
    }

    class Locked {
      public:
        explicit Locked(Side& side) : side_(side), lock_(side.mutex_) { ++side_.num_locked_; }
        ~Locked() {
            lock_.unlock();
            // A peer that is gone is told of by peer_changed().
            for (const auto& [to, message] : letters_) (void)side_.sender_.send(to, message);
            if (news_) side_.notify_();
            --side_.num_locked_;  // the last touch: the side may be gone after it
        }
        Locked(const Locked&) = delete;
        Locked& operator=(const Locked&) = delete;
        void send(comm::Destination to, proto::KvMessage message) {
            letters_.emplace_back(to, std::move(message));
        }
        void tell(Event event) {
            side_.events_.push_back(std::move(event));
            news_ = true;
        }

      private:
        Side& side_;
        std::unique_lock<std::mutex> lock_;
        std::vector<std::pair<comm::Destination, proto::KvMessage>> letters_;
        bool news_ = false;
    };

    std::vector<Event> take_events() {
        std::lock_guard lock(mutex_);
        return std::exchange(events_, {});
    }
    std::vector<Letter> take_letters() { return mail_.take(); }
    void wake_courier() { courier_->wake(); }

    virtual TimePoint attend() = 0;  // the courier's work
    virtual void peer_changed(int node, uint32_t epoch) = 0;

    comm::Fabric& fabric_;
    ControlSender sender_;
    mutable std::mutex mutex_;

  private:
    std::atomic<int> num_locked_{0};  // who holds the lock, or has its letters still to send

    std::byte* accept(const comm::Incoming& message) final { return mail_.accept(message); }
    void failed(const comm::Incoming& message) final { mail_.failed(message); }
    void delivered(const comm::Incoming& message, const std::byte* payload) final {
        if (mail_.delivered(message, payload)) courier_->wake();
    }

    const int port_;
    const std::function<void()> notify_;
    Mailbox mail_;
    std::vector<Event> events_;
    std::optional<Courier> courier_;
    std::optional<comm::PeerWatch> watch_;
};

}  // namespace aerie::transfer
