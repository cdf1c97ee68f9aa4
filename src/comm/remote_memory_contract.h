// What the tests of the contract's one-sided part share.
#pragma once

#include <cstring>

#include "comm/fabric_contract.h"

namespace aerie::comm {

inline void connect(Fabric& from, Fabric& to) {
    const Status status = from.set_peer(to.node(), to.epoch(), to.address());
    ASSERT_TRUE(status.ok()) << status.message();
}

// Registered memory of the test's, or memory of the fabric's.
enum class From { kRegistered, kAllocated };
inline constexpr From kBoth[] = {From::kRegistered, From::kAllocated};

// A region of a host, filled with a pattern, and revoked with this.
class Memory {
  public:
    Memory(Fabric& fabric, size_t size, uint32_t seed, From from)
        : fabric_(fabric), own_(pattern(size, seed)) {
        auto made = from == From::kAllocated ? fabric.allocate_memory(size)
                                             : fabric.register_memory(own_.data(), size);
        EXPECT_TRUE(made.ok()) << made.message();
        region = *made;
        if (from == From::kAllocated) std::memcpy(region.base, own_.data(), size);
    }
    ~Memory() { fabric_.revoke(region.id); }
    std::vector<std::byte> bytes() const { return {region.base, region.base + own_.size()}; }

    OwnRegion region;

  private:
    Fabric& fabric_;
    std::vector<std::byte> own_;
};

// Waits for transfers.
class Outcome {
  public:
    TransferDone done() {
        return [state = state_](const Status& status) {
            std::lock_guard lock(state->mutex);
            state->why = status.ok() ? "" : status.message();
            ++state->count;
        };
    }
    int count() const { return state_->count; }
    // "" or the error.
    std::string wait(int count = 1) {
        if (!eventually([&] { return state_->count >= count; })) return "it never ended";
        std::lock_guard lock(state_->mutex);
        return state_->why;
    }

  private:
    struct State {
        std::mutex mutex;
        std::atomic<int> count{0};
        std::string why;
    };
    std::shared_ptr<State> state_ = std::make_shared<State>();  // outlives a test that gives up
};

inline RemoteRegion attached(Fabric& fabric, const OwnRegion& region) {
    auto remote = fabric.attach(region.key);
    EXPECT_TRUE(remote.ok()) << remote.message();
    return remote.ok() ? *remote : RemoteRegion{};
}

// The error that a transfer begins or ends with.
inline std::string error_of(Fabric& from, Access access, const RemoteRegion& region,
                     std::span<const Piece> pieces) {
    Outcome outcome;
    const Status begun = from.transfer(access, region, pieces, outcome.done());
    if (begun.ok()) return outcome.wait();
    EXPECT_EQ(outcome.count(), 0);
    return begun.message();
}

}  // namespace aerie::comm
