// For tests: a fabric between a side of the KV transfer and the real one, which keeps messages and
// copies back until the test lets them go, in the order that the test wants.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/fabric.h"
#include "proto/kv.pb.h"
#include "transfer/layout.h"

namespace aerie::transfer {

class HeldFabric final : public comm::Fabric {
  public:
    using Body = proto::KvMessage::BodyCase;

    explicit HeldFabric(std::unique_ptr<comm::Fabric> below) : below_(std::move(below)) {}

    // Messages of that kind wait from now on. release(): those that wait go, in their order.
    void hold(Body body) {
        std::lock_guard lock(mutex_);
        held_.insert(body);
    }
    void release(Body body) {
        std::vector<Message> go;
        {
            std::lock_guard lock(mutex_);
            held_.erase(body);
            for (auto& message : messages_)
                if (message.body == body) go.push_back(message);
            std::erase_if(messages_, [body](const Message& message) { return message.body == body; });
        }
        for (const Message& message : go) deliver(message);
    }
    // As a connection that breaks: what waits is lost, copies end with an error. Nothing is held after.
    void lose_all() {
        {
            std::lock_guard lock(mutex_);
            held_.clear();
            messages_.clear();
        }
        let_copies_go(true);
    }
    size_t num_held(Body body) const {
        std::lock_guard lock(mutex_);
        size_t count = 0;
        for (const auto& message : messages_) count += message.body == body;
        return count;
    }
    // Puts and gets wait from now on; let_copies_go() does them, or ends them with an error.
    void hold_copies() {
        std::lock_guard lock(mutex_);
        hold_copies_ = true;
    }
    size_t num_copies() const {
        std::lock_guard lock(mutex_);
        return copies_.size();
    }
    void let_copies_go(bool fail = false) {
        std::vector<Copy> go;
        {
            std::lock_guard lock(mutex_);
            hold_copies_ = false;
            go.swap(copies_);
        }
        for (Copy& copy : go) {
            if (fail) {
                copy.done(error("the copy was made to fail"));
                continue;
            }
            auto done = copy.done;
            const Status begun = below_->transfer(copy.access, copy.region, copy.pieces, std::move(copy.done));
            if (!begun) done(begun);
        }
    }
    // Copies begun so far, by the way that they take.
    size_t num_mapped() const { return num_mapped_; }
    size_t num_by_messages() const { return num_by_messages_; }
    // A message as a peer might send it.
    void send_raw(comm::Destination to, int replica, const proto::KvMessage& message);

    int node() const override { return below_->node(); }
    uint32_t epoch() const override { return below_->epoch(); }
    std::string address() const override { return below_->address(); }
    void open(int port, comm::Receiver* receiver) override { below_->open(port, receiver); }
    void close(int port) override { below_->close(port); }
    Status send(comm::Destination to, const comm::Message& message) override;
    Status set_peer(int node, uint32_t epoch, const std::string& address) override {
        return below_->set_peer(node, epoch, address);
    }
    void drop_peer(int node, uint32_t epoch) override { below_->drop_peer(node, epoch); }
    void disconnect(int node, uint64_t connection) override { below_->disconnect(node, connection); }
    uint32_t peer_epoch(int node) const override { return below_->peer_epoch(node); }
    uint64_t peer_connection(int node) const override { return below_->peer_connection(node); }
    void on_peer_change(std::function<void(int, uint32_t)> listener) override {
        below_->on_peer_change(std::move(listener));
    }
    Result<comm::OwnRegion> register_memory(std::byte* base, size_t bytes) override {
        return below_->register_memory(base, bytes);
    }
    Result<comm::OwnRegion> allocate_memory(size_t bytes, Device device) override {
        return below_->allocate_memory(bytes, device);
    }
    void revoke(uint32_t region_id) override { below_->revoke(region_id); }
    Result<comm::RemoteRegion> attach(const std::string& key) override { return below_->attach(key); }
    Status transfer(comm::Access access, const comm::RemoteRegion& region, std::span<const comm::Piece> pieces,
                    comm::TransferDone done) override {
        ++(region.mapped ? num_mapped_ : num_by_messages_);
        {
            std::lock_guard lock(mutex_);
            if (hold_copies_) {
                copies_.push_back({access, region, {pieces.begin(), pieces.end()}, std::move(done)});
                return {};
            }
        }
        return below_->transfer(access, region, pieces, std::move(done));
    }

  private:
    struct Message {
        comm::Destination to;
        std::string header, payload;
        Body body;
    };
    struct Copy {
        comm::Access access;
        comm::RemoteRegion region;
        std::vector<comm::Piece> pieces;
        comm::TransferDone done;
    };
    void deliver(const Message& message);

    const std::unique_ptr<comm::Fabric> below_;
    mutable std::mutex mutex_;
    std::set<Body> held_;
    bool hold_copies_ = false;
    std::atomic<size_t> num_mapped_{0}, num_by_messages_{0};
    std::vector<Message> messages_;
    std::vector<Copy> copies_;
};

inline Status HeldFabric::send(comm::Destination to, const comm::Message& message) {
    proto::KvMessage parsed;
    if (parsed.ParseFromArray(message.payload, static_cast<int>(message.payload_bytes))) {
        std::lock_guard lock(mutex_);
        if (held_.contains(parsed.body_case())) {
            messages_.push_back({to,
                                 {static_cast<const char*>(message.header), message.header_bytes},
                                 {reinterpret_cast<const char*>(message.payload), message.payload_bytes},
                                 parsed.body_case()});
            return {};
        }
    }
    return below_->send(to, message);
}

inline void HeldFabric::deliver(const Message& message) {
    std::atomic<int> pending{0};  // within a process a send is done when it returns
    (void)below_->send(message.to, {.header = message.header.data(),
                                    .header_bytes = message.header.size(),
                                    .payload = reinterpret_cast<const std::byte*>(message.payload.data()),
                                    .payload_bytes = message.payload.size(),
                                    .pending = &pending});
}

inline void HeldFabric::send_raw(comm::Destination to, int replica, const proto::KvMessage& message) {
    const KvHeader header{.serial = 1'000'000, .replica = replica, .magic = KvHeader::kMagic};
    deliver({to, {reinterpret_cast<const char*>(&header), sizeof(header)}, message.SerializeAsString(), {}});
}

}  // namespace aerie::transfer
