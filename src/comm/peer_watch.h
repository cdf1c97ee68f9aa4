// PeerWatch: a listener to a fabric's peer changes that ends with its owner. After the destructor
// no call runs or will come, so the owner may capture `this`. The fabric keeps a small husk.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "comm/fabric.h"

namespace aerie::comm {

class PeerWatch {
  public:
    PeerWatch(Fabric& fabric, std::function<void(int node, uint32_t epoch)> listener)
        : state_(std::make_shared<State>()) {
        state_->listener = std::move(listener);
        fabric.on_peer_change([state = state_](int node, uint32_t epoch) {
            std::lock_guard lock(state->mutex);
            if (state->listener) state->listener(node, epoch);
        });
    }
    ~PeerWatch() {
        std::lock_guard lock(state_->mutex);
        state_->listener = nullptr;
    }
    PeerWatch(const PeerWatch&) = delete;
    PeerWatch& operator=(const PeerWatch&) = delete;

  private:
    struct State {
        std::mutex mutex;  // held while the listener runs
        std::function<void(int, uint32_t)> listener;
    };
    std::shared_ptr<State> state_;  // shared with the fabric, which outlives this
};

}  // namespace aerie::comm
