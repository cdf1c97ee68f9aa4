#include "control/queue.h"
#include "control/session.h"
#include "proto/control.pb.h"

namespace aerie::control {
namespace {

class LocalDownlink final : public Downlink {
  public:
    void send(const proto::ToHost& message) override { queue.push(message); }
    void cancel() override { queue.close(); }

    Queue<proto::ToHost> queue;
};

class LocalUplink final : public Uplink {
  public:
    explicit LocalUplink(SessionSink& hub)
        : hub_(hub), down_(std::make_shared<LocalDownlink>()), session_(hub.opened(down_)) {}
    ~LocalUplink() override { close(); }

    void send(proto::FromHost message) override {
        std::lock_guard lock(mutex_);  // nothing may follow closed()
        if (!closed_) hub_.received(session_, std::move(message));
    }

    std::optional<proto::ToHost> receive(TimePoint deadline) override {
        return down_->queue.pop(deadline);
    }

    bool ended() const override { return down_->queue.finished(); }

    void close() override {
        down_->queue.close();
        std::lock_guard lock(mutex_);
        if (!std::exchange(closed_, true)) hub_.closed(session_, "it has ended its session");
    }

  private:
    SessionSink& hub_;
    std::shared_ptr<LocalDownlink> down_;  // shared with the hub
    uint64_t session_;
    std::mutex mutex_;
    bool closed_ = false;
};

}  // namespace

std::unique_ptr<Uplink> local_uplink(SessionSink& hub) {
    return std::make_unique<LocalUplink>(hub);
}

}  // namespace aerie::control
