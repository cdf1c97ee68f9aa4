#include "exchange/expert_side.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "base/fault.h"
#include "base/log.h"
#include "comm/port_numbers.h"
#include "exchange/layout.h"
#include "tensor/buffer.h"

namespace aerie::exchange {
namespace {

// The newest dispatch of one (attention rank, slot). An attention rank sends the next one only after
// the combine, so one place is enough; a rank that was restarted may come while the last life's
// dispatch is still being computed, which then keeps its buffer to itself.
struct Mailbox {
    enum class State { kEmpty, kReceiving, kArrived, kTaken };
    State state = State::kEmpty;
    uint32_t epoch = 0;  // of the sender
    DispatchHeader header{};
    std::shared_ptr<Buffer> buffer;           // shared with `Taken` while that life is computed
    const std::byte* payload = nullptr;       // in the buffer, or the sender's memory
    std::shared_ptr<Buffer> output;
    TimePoint arrived;
};

// What take() handed out. It owns the memory that it looks at.
struct Taken {
    uint32_t epoch;
    DispatchHeader header;
    std::shared_ptr<Buffer> buffer;
    std::shared_ptr<Buffer> output;
};

class MailboxExpertSide final : public ExpertSide, comm::Receiver {
  public:
    explicit MailboxExpertSide(ExpertSideOptions options)
        : options_(std::move(options)),
          layout_{options_.hidden * size_of(options_.compute), options_.topk},
          mailboxes_(options_.attention_ranks.size() * kMaxSlots) {
        options_.fabric->open(comm::expert_port(options_.expert_rank), this);
    }
    ~MailboxExpertSide() override {
        options_.fabric->close(comm::expert_port(options_.expert_rank));
    }

    std::span<const Waiting> take() override {
        std::lock_guard lock(mutex_);
        group_.clear();
        taken_.clear();
        const Mailbox* lead = choose_lead();
        if (lead == nullptr) return group_;
        int rows = 0;
        // The lead itself first, then what waits for the same layer: decode, then prefill.
        add_to_group(static_cast<int>(lead - mailboxes_.data()), rows);
        const int layer = taken_[0].header.layer;
        for (const Phase phase : {Phase::kDecode, Phase::kPrefill}) {
            for (size_t i = 0; i < mailboxes_.size(); ++i) {
                const Mailbox& box = mailboxes_[i];
                if (box.state != Mailbox::State::kArrived || box.header.layer != layer ||
                    static_cast<Phase>(box.header.phase) != phase ||
                    rows + box.header.rows > options_.group_rows_max) {
                    continue;
                }
                add_to_group(static_cast<int>(i), rows);
            }
        }
        return group_;
    }

    View output(const Waiting& waiting) override {
        const Taken& taken = taken_[&waiting - group_.data()];
        return View(taken.output->data(), options_.compute, taken.header.rows, options_.hidden);
    }

    void reply(const Waiting& waiting) override {
        const Taken& taken = taken_[&waiting - group_.data()];
        {
            std::lock_guard lock(mutex_);
            Mailbox& box = mailboxes_[waiting.mailbox];
            const bool same_life = box.state == Mailbox::State::kTaken &&
                                   box.epoch == taken.epoch &&
                                   box.header.sequence == taken.header.sequence;
            if (!same_life) return;  // a newer dispatch has come: nobody waits for this one
            box.state = Mailbox::State::kEmpty;
        }
        const CombineHeader header{options_.ep_rank, taken.header.slot, taken.header.sequence,
                                   taken.header.rows};
        // An error means that the attention host is gone, and with it who waits.
        (void)options_.fabric->send(
            options_.attention_ranks[taken.header.attention_rank],
            {.header = &header,
             .header_bytes = sizeof(header),
             .payload = static_cast<const std::byte*>(taken.output->data()),
             .payload_bytes = taken.header.rows * layout_.row_bytes,
             .kind = comm::Payload::kLent});
    }

    bool wait(TimePoint deadline) override {
        std::unique_lock lock(mutex_);
        changed_.wait_until(lock, deadline, [&] { return num_waiting_ > 0 || woken_; });
        woken_ = false;
        return num_waiting_ > 0;
    }
    void wake() override {
        {
            std::lock_guard lock(mutex_);
            woken_ = true;
        }
        changed_.notify_all();
    }

    bool something_waits() override {
        std::lock_guard lock(mutex_);
        return num_waiting_ > 0;
    }

  private:
    // comm::Receiver
    std::byte* accept(const comm::Incoming& message) override {
        DispatchHeader header;
        if (!read_header(message, header)) return nullptr;
        std::lock_guard lock(mutex_);
        Mailbox* box = free_mailbox(message, header);
        if (box == nullptr) return nullptr;
        if (box->buffer == nullptr) {
            box->buffer = std::make_shared<Buffer>(layout_.max_bytes(options_.max_rows));
        }
        box->state = Mailbox::State::kReceiving;
        box->epoch = message.epoch;
        box->header = header;
        return box->buffer->as<std::byte>();
    }

    void delivered(const comm::Incoming& message, const std::byte* payload) override {
        DispatchHeader header;
        if (!read_header(message, header)) return;
        if (!valid_payload(header, payload)) return;
        {
            std::lock_guard lock(mutex_);
            Mailbox& box = mailbox_of(header);
            const bool copied = box.state == Mailbox::State::kReceiving &&
                                box.epoch == message.epoch &&
                                box.header.sequence == header.sequence;
            // Lent in place: accept() was not asked.
            if (!copied && free_mailbox(message, header) == nullptr) return;
            box.epoch = message.epoch;
            box.header = header;
            box.payload = payload;
            box.arrived = Clock::now();
            box.state = Mailbox::State::kArrived;
            ++num_waiting_;
        }
        if (message.node != options_.fabric->node()) changed_.notify_one();
    }

    void failed(const comm::Incoming& message) override {
        DispatchHeader header;
        if (!read_header(message, header)) return;
        std::lock_guard lock(mutex_);
        Mailbox& box = mailbox_of(header);
        if (box.state == Mailbox::State::kReceiving && box.epoch == message.epoch) {
            box.state = Mailbox::State::kEmpty;
        }
    }

    // What a peer sent is checked, never assumed: a bad message is dropped and named in the log.
    bool read_header(const comm::Incoming& message, DispatchHeader& header) const {
        if (message.header_bytes != sizeof(header)) return refuse(message, "header of wrong size");
        std::memcpy(&header, message.header, sizeof(header));
        if (header.attention_rank < 0 ||
            header.attention_rank >= static_cast<int>(options_.attention_ranks.size())) {
            return refuse(message, "unknown attention rank");
        }
        if (header.slot < 0 || header.slot >= kMaxSlots) return refuse(message, "unknown slot");
        if (header.rows <= 0 || header.rows > options_.max_rows) return refuse(message, "rows");
        if (header.num_choices < 0 || header.num_choices > header.rows * options_.topk ||
            message.payload_bytes != layout_.bytes(header.rows, header.num_choices)) {
            return refuse(message, "payload of wrong size");
        }
        return true;
    }
    bool valid_payload(const DispatchHeader& header, const std::byte* payload) const {
        const auto* offsets = reinterpret_cast<const int32_t*>(payload + layout_.offsets_at(header.rows));
        const auto* choices = reinterpret_cast<const kernels::ExpertChoice*>(
            payload + layout_.choices_at(header.rows));
        bool good = offsets[0] == 0 && offsets[header.rows] == header.num_choices;
        for (int r = 0; r < header.rows && good; ++r) good = offsets[r] <= offsets[r + 1];
        for (int i = 0; i < header.num_choices && good; ++i) {
            good = choices[i].expert >= 0 && choices[i].expert < options_.num_experts;
        }
        if (!good) {
            log_error("expert rank {}: dispatch of attention rank {} names experts outside 0 … {}: "
                      "dropped", options_.expert_rank, header.attention_rank,
                      options_.num_experts - 1);
        }
        return good;
    }
    bool refuse(const comm::Incoming& message, const char* why) const {
        log_error("expert rank {}: dispatch from node-{} (epoch {}) dropped: {}",
                  options_.expert_rank, message.node, message.epoch, why);
        return false;
    }

    Mailbox& mailbox_of(const DispatchHeader& header) {
        return mailboxes_[header.attention_rank * kMaxSlots + header.slot];
    }

    // The mailbox, made ready for a new dispatch, or null where this one is old or already here.
    Mailbox* free_mailbox(const comm::Incoming& message, const DispatchHeader& header) {
        Mailbox& box = mailbox_of(header);
        if (box.epoch > message.epoch) return nullptr;
        if (box.state == Mailbox::State::kEmpty) return &box;
        const bool newer =
            box.epoch < message.epoch || box.header.sequence < header.sequence;
        if (!newer) return nullptr;  // sent again while the first is still here
        if (box.state == Mailbox::State::kArrived) --num_waiting_;
        // Whoever uses the old life's memory keeps it; the new one gets its own.
        box.buffer.reset();
        box.output.reset();
        box.state = Mailbox::State::kEmpty;
        return &box;
    }

    const Mailbox* choose_lead() const {
        const Mailbox* decode = nullptr;
        const Mailbox* prefill = nullptr;
        for (const Mailbox& box : mailboxes_) {
            if (box.state != Mailbox::State::kArrived) continue;
            auto& oldest = static_cast<Phase>(box.header.phase) == Phase::kDecode ? decode : prefill;
            if (oldest == nullptr || box.arrived < oldest->arrived) oldest = &box;
        }
        if (decode == nullptr || prefill == nullptr) return decode != nullptr ? decode : prefill;
        return seconds_since(prefill->arrived) > options_.prefill_wait_s ? prefill : decode;
    }

    void add_to_group(int index, int& rows) {
        Mailbox& box = mailboxes_[index];
        box.state = Mailbox::State::kTaken;
        --num_waiting_;
        if (box.output == nullptr) {
            box.output = std::make_shared<Buffer>(options_.max_rows * layout_.row_bytes);
        }
        taken_.push_back({box.epoch, box.header, box.buffer, box.output});
        const int n = box.header.rows;
        rows += n;
        group_.push_back(
            {.mailbox = index,
             .layer = box.header.layer,
             .phase = static_cast<Phase>(box.header.phase),
             .hidden = ConstView(box.payload, options_.compute, n, options_.hidden),
             .offsets = reinterpret_cast<const int32_t*>(box.payload + layout_.offsets_at(n)),
             .choices = reinterpret_cast<const kernels::ExpertChoice*>(box.payload +
                                                                      layout_.choices_at(n)),
             .arrived = box.arrived});
    }

    const ExpertSideOptions options_;
    const DispatchLayout layout_;

    std::mutex mutex_;  // held for bookkeeping only, never while computing or sending
    std::condition_variable changed_;
    std::vector<Mailbox> mailboxes_;  // [attention ranks · kMaxSlots]
    int num_waiting_ = 0;             // mailboxes in kArrived
    bool woken_ = false;

    std::vector<Waiting> group_;  // of the last take()
    std::vector<Taken> taken_;    // [group_]
};

}  // namespace

std::unique_ptr<ExpertSide> make_expert_side(ExpertSideOptions options) {
    return std::make_unique<MailboxExpertSide>(std::move(options));
}

}  // namespace aerie::exchange
