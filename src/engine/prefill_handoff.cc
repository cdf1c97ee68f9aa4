#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/clock.h"
#include "base/log.h"
#include "engine/handoff.h"
#include "engine/kv_probe.h"

namespace aerie::engine {
namespace {

// How long a request that decode waits for may itself wait for blocks that leases keep, while nothing
// else is computed: decode reads what is leased only after it.
constexpr double kLeaseYieldSeconds = 1;

// A prefill replica: each request asks its decode replica for blocks and is written into them layer
// by layer as it is computed, or is computed at once and kept until it has been read; then it leaves.
// Its client is told everything by the decode replica, errors too.
class PrefillHandoff final : public KvHandoff {
  public:
    PrefillHandoff(schedule::Scheduler& scheduler, const metrics::AttentionMetrics& metrics,
                   std::vector<transfer::Pool> pools, std::unique_ptr<transfer::PrefillSide> side,
                   transfer::Policy policy)
        : scheduler_(scheduler), policy_(policy), metrics_(metrics), pools_(std::move(pools)),
          side_(std::move(side)) {}

    void add(const Request& request) override { take(request, 1, 0); }

    void abort(RequestId id) override { give_up(id, "the request was cancelled"); }

    void fail(RequestId id, const std::string& why) override { give_up(id, why); }

    void receive(std::vector<TokenOut>&) override {
        for (auto& event : side_->poll()) handle(event);
        for (const RequestId id : scheduler_.take_announcements()) begin(id);
        bind_late();
        yield_lease();
    }

    void planned(const schedule::Plan& plan, std::vector<TokenOut>&) override {
        chunks_.clear();
        for (const auto& entry : plan.prefill) {
            const RequestId id = entry.sequence->id;
            const bool first = may_start_.erase(id) > 0;
            if (first) metrics_.kv_policy[static_cast<size_t>(attempts_.at(id).reason)].add();
            // With its first chunk goes what was found in the cache.
            const int begin = first ? 0 : entry.first;
            chunks_.push_back({.id = id,
                               .first_token = begin,
                               .num_tokens = entry.first + entry.num_tokens - begin,
                               .blocks = entry.sequence->blocks});
        }
        side_->prepare(chunks_);
        idle_ = plan.prefill.empty();
        if (!idle_ || !decode_waits()) {
            stuck_since_.reset();
        } else if (!stuck_since_) {
            stuck_since_ = Clock::now();
        }
    }

    void layer_done(int cp_rank, int layer) override { side_->push(cp_rank, layer); }

    // The first token travels with the KV.
    void sampled(std::vector<TokenOut>& out) override {
        for (TokenOut& first : out) {
            const schedule::Sequence* sequence = scheduler_.find(first.id);
            if (sequence == nullptr) continue;
            if (sequence->hash_logits) {
                first.kv_hashes = hash_kv(pools_, sequence->blocks, sequence->prefill_end);
            }
            first.mtp_hidden = sequence->mtp_hidden;
            side_->done(first.id, first, sequence->blocks);
        }
        out.clear();
    }

  private:
    struct Attempt {
        uint32_t number;
        int decode_replica;
        int num_before;  // tokens of the prompt when it was first computed; 0: it is new
        bool offered = false;
        TimePoint begun = {};
        transfer::Reason reason = transfer::Reason::kDefault;
    };

    void take(const Request& request, uint32_t number, int num_output) {
        const int num_tokens = static_cast<int>(request.prompt.size());
        attempts_[request.id] = {.number = number,
                                 .decode_replica = request.decode_replica,
                                 .num_before = num_output > 0 ? num_tokens - num_output : 0};
        if (Status added = scheduler_.add(request, num_output, number); !added) {
            give_up(request.id, added.message());
        }
    }

    transfer::TransferFacts facts(const schedule::Sequence& sequence, const Attempt& attempt) const {
        return {.num_tokens = static_cast<int>(sequence.tokens.size()),
                .num_cached = scheduler_.cached_tokens(sequence),
                .page_size = scheduler_.kv().page_size(),
                .num_before = attempt.num_before};
    }

    void begin(RequestId id) {
        const schedule::Sequence* sequence = scheduler_.find(id);
        const auto attempt = attempts_.find(id);
        if (sequence == nullptr || attempt == attempts_.end()) return;
        const transfer::Choice choice = choose(policy_, facts(*sequence, attempt->second));
        attempt->second.reason = choice.reason;
        attempt->second.begun = Clock::now();
        side_->begin(id, attempt->second.number, attempt->second.decode_replica,
                     static_cast<int>(sequence->tokens.size()), choice.mode);
        if (choice.mode == transfer::Mode::kPull) {
            start(id);
        } else {
            unoffered_.push_back(id);
        }
    }

    void start(RequestId id) {
        scheduler_.may_start(id);
        may_start_.insert(id);
    }

    // For one that may start: decode keeps blocks for it, or its place in the queue.
    bool decode_waits() const {
        return std::any_of(may_start_.begin(), may_start_.end(), [this](RequestId id) {
            const Attempt& attempt = attempts_.at(id);
            return attempt.offered || attempt.num_before > 0;
        });
    }

    bool fits_now(const schedule::Sequence& sequence) const {
        const auto wanted = static_cast<int64_t>(sequence.tokens.size()) + scheduler_.kv().page_size();
        return wanted <= scheduler_.counts().free_tokens;
    }

    // No offer has come and there is nothing else to do: what waits longest is computed all the same.
    void bind_late() {
        for (; !unoffered_.empty(); unoffered_.pop_front()) {
            const RequestId id = unoffered_.front();
            const schedule::Sequence* sequence = scheduler_.find(id);
            const auto attempt = attempts_.find(id);
            if (sequence == nullptr || attempt == attempts_.end() || sequence->may_start) continue;
            if (!idle_ || !may_start_.empty()) return;
            transfer::TransferFacts now = facts(*sequence, attempt->second);
            now.prefill_idle = true;
            now.waited_s = seconds_since(attempt->second.begun);
            const transfer::Choice choice = choose(policy_, now);
            if (choice.mode == transfer::Mode::kPush || !fits_now(*sequence)) return;
            if (!side_->pull_instead(id)) continue;
            attempt->second.reason = choice.reason;
            start(id);  // the next round takes it out
            return;
        }
    }

    void yield_lease() {
        if (!stuck_since_ || seconds_since(*stuck_since_) < kLeaseYieldSeconds) return;
        stuck_since_ = Clock::now();
        if (side_->end_newest_lease("its blocks were needed for a request that comes before it")) {
            log_warning("a request may start and has waited {} s for blocks that a lease keeps: the newest "
                        "lease ends",
                        kLeaseYieldSeconds);
        }
    }

    void handle(transfer::PrefillEvent& event) {
        using Kind = transfer::PrefillEvent::Kind;
        const auto attempt = attempts_.find(event.id);
        const bool running = attempt != attempts_.end() && attempt->second.number == event.attempt;
        switch (event.kind) {
            case Kind::kOffered:
                if (!running) break;
                attempt->second.offered = true;
                start(event.id);
                break;
            case Kind::kAcked:
                if (running) leave(event.id);
                scheduler_.release(event.id, event.attempt);
                break;
            case Kind::kCancelled:
                if (!running) break;
                log_debug("request {}: {}", event.id, event.why);
                scheduler_.abort(event.id);
                leave(event.id);
                break;
            case Kind::kReleased: scheduler_.release(event.id, event.attempt); break;
            case Kind::kRetracted:
                // The same one may be asked for twice.
                if (attempt != attempts_.end() && attempt->second.number >= event.attempt) break;
                if (attempt != attempts_.end()) give_up(event.id, "it is computed again");
                take(event.request, event.attempt, event.num_output);
                break;
        }
    }

    // Ends a request from this side; the decode side tells the client.
    void give_up(RequestId id, const std::string& why) {
        const auto attempt = attempts_.find(id);
        if (attempt == attempts_.end()) return;
        scheduler_.abort(id);
        side_->cancel(id, attempt->second.number, attempt->second.decode_replica, why);
        leave(id);
    }

    void leave(RequestId id) {
        attempts_.erase(id);
        may_start_.erase(id);
    }

    schedule::Scheduler& scheduler_;
    const transfer::Policy policy_;
    const metrics::AttentionMetrics metrics_;
    const std::vector<transfer::Pool> pools_;  // [cp]
    std::unique_ptr<transfer::PrefillSide> side_;
    std::unordered_map<RequestId, Attempt> attempts_;
    std::deque<RequestId> unoffered_;              // begun, oldest first; some may have gone on
    std::unordered_set<RequestId> may_start_;      // not planned yet
    bool idle_ = true;                             // the last plan was empty
    std::optional<TimePoint> stuck_since_;         // some may start, and nothing could be planned
    std::vector<transfer::PushChunk> chunks_;      // of the running step
};

}  // namespace

std::unique_ptr<KvHandoff> make_prefill_handoff(schedule::Scheduler& scheduler,
                                                transfer::PrefillSideOptions options,
                                                transfer::Policy policy) {
    const metrics::AttentionMetrics metrics = options.metrics;
    const std::vector<transfer::Pool> pools = options.pools;
    return std::make_unique<PrefillHandoff>(scheduler, metrics, pools,
                                            transfer::make_prefill_side(std::move(options)), policy);
}

}  // namespace aerie::engine
