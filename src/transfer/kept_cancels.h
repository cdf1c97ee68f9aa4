// KeptCancels: what the prefill side has said of attempts that ended, for as long as a lost connection may
// have taken it along. A decode replica that never hears of a request again would wait for ever: what may
// not have arrived is said again to the same life once it is back. The caller's lock.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "comm/fabric.h"
#include "proto/kv.pb.h"

namespace aerie::transfer {

class KeptCancels {
  public:
    using Letter = std::pair<comm::Destination, proto::KvMessage>;

    // epoch: the life that it is for; 0: none is known, the next one will do. connected: it is being
    // sent; else it waits for back().
    void add(comm::Destination to, uint32_t epoch, bool connected, proto::KvMessage cancel,
             TimePoint now = Clock::now());
    void lost(int node, TimePoint now = Clock::now());  // the connection to it
    // A connection is there: what is to be said over it. An earlier life's is forgotten.
    std::vector<Letter> back(int node, uint32_t epoch, TimePoint now = Clock::now());
    size_t size() const { return kept_.size(); }

  private:
    void forget_arrived(TimePoint now);

    struct Kept {
        comm::Destination to;
        uint32_t epoch;
        bool lost;
        TimePoint sent;
        proto::KvMessage cancel;
    };
    std::vector<Kept> kept_;
    size_t sweep_at_ = 64;
};

}  // namespace aerie::transfer
