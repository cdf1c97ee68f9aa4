#include "exchange/attention_side.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "comm/peer_watch.h"
#include "comm/port_numbers.h"
#include "exchange/layout.h"
#include "tensor/buffer.h"

namespace aerie::exchange {
namespace {

// The part of a slot's dispatch that one expert rank computes.
struct Leg {
    enum class State { kIdle, kUnsent, kWaiting, kReceiving, kArrived };
    State state = State::kIdle;
    std::vector<int32_t> rows;  // of the dispatch, ascending
    int num_choices = 0;
    Buffer payload;             // as layout.h says; kept until the combine has come
    Buffer combined;            // where a combine from another process is received
    const std::byte* result = nullptr;  // [rows, hidden]
    comm::Destination to{};     // where it was sent
    uint32_t to_epoch = 0;
};

struct Slot {
    bool busy = false;
    int layer = 0;
    Phase phase = Phase::kPrefill;
    uint64_t sequence = 0;
    int rows = 0;
    TimePoint sent;
    std::vector<Leg> legs;  // [ep]
};

class MailboxAttentionSide final : public AttentionSide, comm::Receiver {
  public:
    explicit MailboxAttentionSide(AttentionSideOptions options)
        : options_(std::move(options)),
          num_ep_(static_cast<int>(options_.expert_begin.size()) - 1),
          layout_{options_.hidden * size_of(options_.compute), options_.topk},
          slots_(kMaxSlots) {
        CHECK(num_ep_ >= 1 && !options_.copies.empty());
        const int num_experts = options_.expert_begin.back();
        owner_.resize(num_experts);
        for (int r = 0; r < num_ep_; ++r) {
            for (int e = options_.expert_begin[r]; e < options_.expert_begin[r + 1]; ++e) owner_[e] = r;
        }
        for (Slot& slot : slots_) {
            slot.legs.resize(num_ep_);
            for (Leg& leg : slot.legs) leg.rows.reserve(options_.max_rows);
        }
        watch_.emplace(*options_.fabric, [this](int, uint32_t) {
            {
                std::lock_guard lock(mutex_);
                peers_changed_ = true;
            }
            changed_.notify_all();
        });
        options_.fabric->open(comm::attention_port(options_.attention_rank), this);
    }
    ~MailboxAttentionSide() override {
        options_.fabric->close(comm::attention_port(options_.attention_rank));
    }

    Status dispatch(const Dispatch& dispatch) override {
        Slot& slot = slots_.at(dispatch.slot);
        CHECK(!slot.busy, "slot {} dispatches layer {} while layer {} is in flight", dispatch.slot,
              dispatch.layer, slot.layer);
        const TimePoint begin = Clock::now();
        const int rows = static_cast<int>(dispatch.hidden.rows);
        CHECK(rows <= options_.max_rows, "{} rows of at most {}", rows, options_.max_rows);
        // No combine can arrive for a slot that is not busy, so no lock is needed to fill it.
        slot.layer = dispatch.layer;
        slot.phase = dispatch.phase;
        slot.rows = rows;
        slot.sent = begin;
        for (Leg& leg : slot.legs) fill(dispatch, leg);
        {
            std::lock_guard lock(mutex_);
            slot.busy = true;
            slot.sequence = ++sequence_;
            for (Leg& leg : slot.legs) {
                leg.state = leg.rows.empty() ? Leg::State::kIdle : Leg::State::kUnsent;
            }
        }
        send_unsent(slot, dispatch.slot);
        options_.metrics.dispatch_time.observe(seconds_since(begin));
        return {};
    }

    Status combine(int slot_index, View sum) override {
        Slot& slot = slots_.at(slot_index);
        if (slot.rows == 0) {
            std::lock_guard lock(mutex_);
            slot.busy = false;
            return {};
        }
        CHECK(slot.busy && sum.rows == slot.rows && sum.dtype == DType::kF32);
        const TimePoint begin = Clock::now();
        Status status = wait_for_legs(slot, slot_index);
        options_.metrics.combine_wait_time.observe(seconds_since(begin));
        if (status) {
            for (int r = 0; r < num_ep_; ++r) {
                if (r == num_ep_ - 1 && faulty(slot, Fault::kCombineLost)) continue;
                add_rows(slot.legs[r], sum);
            }
            if (faulty(slot, Fault::kRoundingMoved)) round_rows(sum);
        }
        std::lock_guard lock(mutex_);
        free_slot(slot);
        return status;
    }

    void reset() override {
        std::lock_guard lock(mutex_);
        for (Slot& slot : slots_) free_slot(slot);
    }

  private:
    // With the lock held.
    void free_slot(Slot& slot) {
        slot.busy = false;
        for (Leg& leg : slot.legs) {
            const bool under_way =
                leg.state == Leg::State::kWaiting || leg.state == Leg::State::kReceiving;
            leg.state = Leg::State::kIdle;
            if (!under_way) continue;
            // An expert rank may still read what was lent to it, or write its answer.
            abandoned_.push_back(std::move(leg.payload));
            abandoned_.push_back(std::move(leg.combined));
            leg.payload = Buffer();
            leg.combined = Buffer();
        }
    }

    // Gathers the rows that expert rank `r` (the leg's index) must see, with their local experts.
    void fill(const Dispatch& dispatch, Leg& leg) {
        const int r = static_cast<int>(&leg - slots_[dispatch.slot].legs.data());
        const int rows = static_cast<int>(dispatch.hidden.rows);
        leg.rows.clear();
        leg.num_choices = 0;
        for (int i = 0; i < rows; ++i) {
            const int32_t* ids = dispatch.ids + static_cast<int64_t>(i) * dispatch.topk;
            int mine = 0;
            for (int k = 0; k < dispatch.topk; ++k) mine += owner_[ids[k]] == r;
            if (mine > 0) leg.rows.push_back(i);
            leg.num_choices += mine;
        }
        if (leg.rows.empty()) return;
        if (leg.payload.size() == 0) {
            leg.payload = Buffer(layout_.max_bytes(options_.max_rows));
            leg.combined = Buffer(options_.max_rows * layout_.row_bytes);
        }
        const int n = static_cast<int>(leg.rows.size());
        auto* payload = leg.payload.as<std::byte>();
        auto* offsets = reinterpret_cast<int32_t*>(payload + layout_.offsets_at(n));
        auto* choices = reinterpret_cast<kernels::ExpertChoice*>(payload + layout_.choices_at(n));
        int next = 0;
        for (int i = 0; i < n; ++i) {
            const int64_t row = leg.rows[i];
            std::memcpy(payload + i * layout_.row_bytes, dispatch.hidden.row(row), layout_.row_bytes);
            offsets[i] = next;
            for (int k = 0; k < dispatch.topk; ++k) {
                const int32_t expert = dispatch.ids[row * dispatch.topk + k];
                if (owner_[expert] != r) continue;
                choices[next++] = {expert - options_.expert_begin[r],
                                   dispatch.weights[row * dispatch.topk + k]};
            }
        }
        offsets[n] = next;
    }

    // The copy to use for expert rank r: the preferred one, or the next that is complete.
    const comm::Destination* destination(int r) const {
        const int num_copies = static_cast<int>(options_.copies.size());
        for (int i = 0; i < num_copies; ++i) {
            const auto& copy = options_.copies[(options_.first_copy + i) % num_copies];
            const bool complete = std::all_of(copy.begin(), copy.end(), [&](const auto& rank) {
                return options_.fabric->peer_epoch(rank.node) != 0;
            });
            if (complete) return &copy[r];
        }
        return nullptr;
    }

    // Sends each leg that is not under way, where its expert rank can be reached.
    void send_unsent(Slot& slot, int slot_index) {
        for (int r = 0; r < num_ep_; ++r) {
            Leg& leg = slot.legs[r];
            if (leg.state != Leg::State::kUnsent) continue;
            const comm::Destination* to = destination(r);
            if (to == nullptr) continue;
            const uint32_t epoch = options_.fabric->peer_epoch(to->node);
            {
                std::lock_guard lock(mutex_);
                leg.state = Leg::State::kWaiting;
                leg.to = *to;
                leg.to_epoch = epoch;
            }
            const int n = static_cast<int>(leg.rows.size());
            const DispatchHeader header{.attention_rank = options_.attention_rank,
                                        .slot = slot_index,
                                        .sequence = slot.sequence,
                                        .layer = slot.layer,
                                        .phase = static_cast<int32_t>(slot.phase),
                                        .rows = n,
                                        .num_choices = leg.num_choices};
            const size_t bytes = layout_.bytes(n, leg.num_choices);
            const Status sent = options_.fabric->send(*to, {.header = &header,
                                                            .header_bytes = sizeof(header),
                                                            .payload = leg.payload.as<std::byte>(),
                                                            .payload_bytes = bytes,
                                                            .kind = comm::Payload::kLent});
            if (sent) {
                options_.metrics.dispatch_bytes.add(static_cast<double>(bytes));
            } else {
                std::lock_guard lock(mutex_);  // gone between the look and the send
                if (leg.state == Leg::State::kWaiting) leg.state = Leg::State::kUnsent;
            }
        }
    }

    // Legs whose expert host has died or come back since they were sent go out again.
    void take_back_lost(Slot& slot) {
        std::lock_guard lock(mutex_);
        peers_changed_ = false;
        for (int r = 0; r < num_ep_; ++r) {
            Leg& leg = slot.legs[r];
            if (leg.state != Leg::State::kWaiting) continue;
            if (options_.fabric->peer_epoch(leg.to.node) == leg.to_epoch) continue;
            leg.state = Leg::State::kUnsent;
            options_.metrics.replays.add();
        }
    }

    static bool arrived(const Slot& slot) {
        return std::all_of(slot.legs.begin(), slot.legs.end(), [](const Leg& leg) {
            return leg.state == Leg::State::kIdle || leg.state == Leg::State::kArrived;
        });
    }

    Status wait_for_legs(Slot& slot, int slot_index) {
        const TimePoint deadline =
            slot.sent + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(options_.timeout_s));
        while (true) {
            bool look_around = Clock::now() >= deadline;
            {
                std::unique_lock lock(mutex_);
                if (arrived(slot)) return {};
                look_around = look_around || peers_changed_;
            }
            // However much there is to help with, a dead peer and the deadline are seen.
            if (!look_around && options_.help && options_.help()) continue;
            {
                std::unique_lock lock(mutex_);
                // A send that failed is tried again soon, without a peer change to wake us.
                const TimePoint soon = std::min(deadline, after(0.05));
                changed_.wait_until(lock, soon, [&] { return arrived(slot) || peers_changed_; });
                if (arrived(slot)) return {};
            }
            if (Clock::now() >= deadline) return timed_out(slot, slot_index);
            take_back_lost(slot);
            send_unsent(slot, slot_index);
        }
    }

    Status timed_out(const Slot& slot, int slot_index) {
        std::lock_guard lock(mutex_);
        std::string missing;
        for (int r = 0; r < num_ep_; ++r) {
            const Leg& leg = slot.legs[r];
            if (leg.state == Leg::State::kIdle || leg.state == Leg::State::kArrived) continue;
            missing += fmt::format("{}ep rank {} ({})", missing.empty() ? "" : ", ", r,
                                   leg.state == Leg::State::kUnsent
                                       ? std::string("no complete expert copy is connected")
                                       : fmt::format("node-{}", leg.to.node));
        }
        return error("attention rank {} on node-{} waited {:.1f} s for the combine of layer {}, "
                     "microbatch {}, from {}",
                     options_.attention_rank, options_.fabric->node(), seconds_since(slot.sent),
                     slot.layer, slot_index, missing);
    }

    // Planted faults strike in one layer.
    static bool faulty(const Slot& slot, Fault fault) { return slot.layer == 2 && fault_planted(fault); }
    static void round_rows(View sum) {
        for (int64_t i = 0; i < sum.rows; ++i) {
            float* x = sum.row_as<float>(i);
            for (int64_t c = 0; c < sum.cols; ++c) x[c] = f32_from_bf16(bf16_from_f32(x[c]));
        }
    }

    void add_rows(const Leg& leg, View sum) const {
        const int64_t cols = sum.cols;
        for (size_t i = 0; i < leg.rows.size(); ++i) {
            float* to = sum.row_as<float>(leg.rows[i]);
            const std::byte* from = leg.result + i * layout_.row_bytes;
            if (options_.compute == DType::kF32) {
                const auto* x = reinterpret_cast<const float*>(from);
                for (int64_t c = 0; c < cols; ++c) to[c] += x[c];
            } else {
                const auto* x = reinterpret_cast<const BF16*>(from);
                for (int64_t c = 0; c < cols; ++c) to[c] += f32_from_bf16(x[c]);
            }
        }
    }

    // comm::Receiver. Only the combine that a leg waits for is let in.
    Leg* expected(const comm::Incoming& message, Leg::State state) {
        CombineHeader header;
        if (message.header_bytes != sizeof(header)) return nullptr;
        std::memcpy(&header, message.header, sizeof(header));
        if (header.slot < 0 || header.slot >= kMaxSlots || header.ep_rank < 0 ||
            header.ep_rank >= num_ep_) {
            return nullptr;
        }
        Slot& slot = slots_[header.slot];
        Leg& leg = slot.legs[header.ep_rank];
        const bool right = slot.busy && slot.sequence == header.sequence && leg.state == state &&
                           header.rows == static_cast<int>(leg.rows.size()) &&
                           message.payload_bytes == header.rows * layout_.row_bytes;
        return right ? &leg : nullptr;
    }

    std::byte* accept(const comm::Incoming& message) override {
        std::lock_guard lock(mutex_);
        Leg* leg = expected(message, Leg::State::kWaiting);
        if (leg == nullptr) return nullptr;
        leg->state = Leg::State::kReceiving;
        return leg->combined.as<std::byte>();
    }

    void delivered(const comm::Incoming& message, const std::byte* payload) override {
        {
            std::lock_guard lock(mutex_);
            Leg* leg = expected(message, Leg::State::kReceiving);
            if (leg == nullptr) leg = expected(message, Leg::State::kWaiting);  // lent in place
            if (leg == nullptr) return;
            leg->state = Leg::State::kArrived;
            leg->result = payload;
            options_.metrics.combine_bytes.add(static_cast<double>(message.payload_bytes));
        }
        changed_.notify_all();
    }

    void failed(const comm::Incoming& message) override {
        std::lock_guard lock(mutex_);
        Leg* leg = expected(message, Leg::State::kReceiving);
        if (leg != nullptr) leg->state = Leg::State::kWaiting;
    }

    const AttentionSideOptions options_;
    const int num_ep_;
    const DispatchLayout layout_;
    std::vector<int> owner_;  // [experts]: expert rank

    std::mutex mutex_;  // guards the states of legs and slots; never held while sending
    std::condition_variable changed_;
    std::vector<Slot> slots_;
    bool peers_changed_ = false;
    uint64_t sequence_ = 0;
    std::vector<Buffer> abandoned_;  // of steps that failed
    std::optional<comm::PeerWatch> watch_;  // last: ends before what its listener uses
};

}  // namespace

std::unique_ptr<AttentionSide> make_attention_side(AttentionSideOptions options) {
    return std::make_unique<MailboxAttentionSide>(std::move(options));
}

}  // namespace aerie::exchange
