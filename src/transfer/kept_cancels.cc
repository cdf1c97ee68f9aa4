#include "transfer/kept_cancels.h"

namespace aerie::transfer {
namespace {

// A fabric tells of a loss within seconds; what was sent longer ago has arrived.
constexpr std::chrono::seconds kArrived{30};

}  // namespace

void KeptCancels::forget_arrived(TimePoint now) {
    std::erase_if(kept_, [now](const Kept& kept) { return !kept.lost && now - kept.sent > kArrived; });
}

void KeptCancels::add(comm::Destination to, uint32_t epoch, bool connected, proto::KvMessage cancel,
                      TimePoint now) {
    if (kept_.size() >= sweep_at_) {
        forget_arrived(now);
        sweep_at_ = 64 + 2 * kept_.size();
    }
    // Said again it ends the request: that a lease ran out is nothing to one that was never announced.
    cancel.mutable_cancel()->set_lease_ran_out(false);
    kept_.push_back({to, epoch, !connected, now, std::move(cancel)});
}

void KeptCancels::lost(int node, TimePoint now) {
    forget_arrived(now);
    for (Kept& kept : kept_) {
        if (kept.to.node == node) kept.lost = true;
    }
}

std::vector<KeptCancels::Letter> KeptCancels::back(int node, uint32_t epoch, TimePoint now) {
    forget_arrived(now);
    std::erase_if(kept_, [&](const Kept& kept) {
        return kept.to.node == node && kept.epoch != 0 && kept.epoch != epoch;
    });
    std::vector<Letter> letters;
    for (Kept& kept : kept_) {
        if (kept.to.node != node || !std::exchange(kept.lost, false)) continue;
        kept.epoch = epoch;
        kept.sent = now;
        letters.emplace_back(kept.to, kept.cancel);
    }
    return letters;
}

}  // namespace aerie::transfer
