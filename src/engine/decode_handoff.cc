#include <algorithm>
#include <unordered_map>

#include "base/clock.h"
#include "engine/early_news.h"
#include "engine/handoff.h"
#include "engine/kv_probe.h"
#include "request/convert.h"

namespace aerie::engine {
namespace {

// Requests that are remembered before they are known, and after they have ended.
constexpr size_t kMaxEarly = 4096;
// A lost connection of two lives is made again within this, or is not: so long waits what is to be
// sent back.
constexpr double kReconnectSeconds = 10;

// A decode replica: requests enter with their KV, written by a prefill replica into blocks that were
// reserved for it, or read from there. Only this side talks to the client.
class DecodeHandoff final : public KvHandoff {
  public:
    DecodeHandoff(schedule::Scheduler& scheduler, const transfer::DecodeSideOptions& options,
                  std::unique_ptr<transfer::DecodeSide> side, std::function<void()> copy_kv)
        : scheduler_(scheduler), copy_kv_(std::move(copy_kv)), pools_(options.pools),
          prefill_(options.prefill), fabric_(options.fabric), side_(std::move(side)) {}

    void add(const Request& request) override {
        if (const auto gone = gone_.take(request.id)) return tell(request.id, gone->why);
        if (Status added = scheduler_.add(request); !added) {
            told_.push_back(aborted(request.id, added.message(), ErrorKind::kBadRequest));
            return;
        }
        requests_[request.id].request = request;
        if (const auto early = early_.take(request.id)) {
            announced(*early);
            if (early->kind == transfer::DecodeEvent::Kind::kLeaseRanOut) lease_ran_out(*early);
        }
    }

    void abort(RequestId id) override { give_up(id, "the request was cancelled"); }

    void fail(RequestId id, const std::string& why) override {
        tell(id, why);
        give_up(id, why);
    }

    void receive(std::vector<TokenOut>& out) override {
        auto events = side_->poll();
        // Whoever has come back may say of the attempts that went with the connection that they have
        // ended: these have been asked for again before that is heard.
        send_back_lost();
        for (auto& event : events) handle(event);
        forget_lost();
        out.insert(out.end(), told_.begin(), told_.end());
        told_.clear();
    }

    void planned(const schedule::Plan& plan, std::vector<TokenOut>& out) override {
        for (const auto& retracted : plan.retracted) {
            if (const auto known = requests_.find(retracted.id); known != requests_.end()) {
                send_back(retracted, known->second.attempt() + 1);
            }
        }
        make_offers();
        out.insert(out.end(), told_.begin(), told_.end());
        told_.clear();
    }

    void layer_done(int, int) override {}

    void sampled(std::vector<TokenOut>& out) override {
        for (const TokenOut& token : out) {
            if (token.finish != FinishReason::kNone) ended(token.id);
        }
    }

  private:
    struct Known {
        Request request;
        std::optional<transfer::DecodeEvent> announced;
        bool offered = false;  // the transfer holds its blocks
        uint32_t attempt() const { return announced ? announced->attempt : 0; }
    };

    // A retracted request that a prefill replica is to compute again, and has not announced.
    struct SentBack {
        schedule::Retracted retracted;
        uint32_t attempt;
        int prefill_replica;
        uint64_t connection;  // to its host; 0: no prefill host is connected, it waits for one
        TimePoint until;      // so long
    };

    // A request that is not known here, or not any more.
    struct Gone {
        std::string why;
        bool told;  // its client knows
    };

    void ended(RequestId id) {
        requests_.erase(id);
        remember(id, {"the request has ended", true});
    }

    // Who is forgotten would wait for ever if it came then: its client hears of its end now.
    void remember(RequestId id, Gone gone) {
        const auto oldest = gone_.put(id, std::move(gone));
        if (oldest && !oldest->second.told) tell(oldest->first, oldest->second.why);
    }

    void handle(transfer::DecodeEvent& event) {
        using Kind = transfer::DecodeEvent::Kind;
        switch (event.kind) {
            case Kind::kAnnounced: announced(event); break;
            case Kind::kReady: ready(event); break;
            case Kind::kCancelled: cancelled(event); break;
            case Kind::kLeaseRanOut: lease_ran_out(event); break;
            case Kind::kReleased: scheduler_.release(event.id); break;
        }
    }

    void announced(const transfer::DecodeEvent& event) {
        const auto known = requests_.find(event.id);
        if (known == requests_.end()) {
            // The announcement has overtaken the request, or the request has ended here.
            if (gone_.contains(event.id)) return refuse(event, "the request has ended");
            if (const auto oldest = early_.put(event.id, event)) {
                const std::string why = fmt::format(
                    "more than {} requests were announced before they came", kMaxEarly);
                refuse(oldest->second, why);
                remember(oldest->first, {why, false});
            }
            return;
        }
        const auto sent = sent_back_.find(event.id);
        const uint32_t asked = sent == sent_back_.end() ? 0 : sent->second.attempt;
        if (event.attempt < asked || event.attempt < known->second.attempt()) {
            return refuse(event, "a later attempt was asked for");
        }
        if (event.attempt == known->second.attempt()) return;
        if (known->second.announced) return refuse(event, "another attempt is under way");
        known->second.announced = event;
        sent_back_.erase(event.id);
        scheduler_.announced(event.id);
    }

    void refuse(const transfer::DecodeEvent& event, const std::string& why) {
        side_->cancel(event.id, event.attempt, event.prefill_replica, why);
    }

    // What a life of a prefill host has announced, its next one does not know.
    void forget_lost() {
        early_.erase_if([this](const transfer::DecodeEvent& event) {
            // To one whose lease ran out the prefill host is nothing any more.
            const bool lost =
                event.kind == transfer::DecodeEvent::Kind::kAnnounced &&
                fabric_->peer_epoch(prefill_[event.prefill_replica].node) != event.epoch;
            if (lost) refuse(event, "its prefill host is gone");
            return lost;
        });
    }

    void make_offers() {
        const std::vector<RequestId> offers = scheduler_.take_offers();
        copy_kv_();
        for (const RequestId id : offers) {
            const schedule::Sequence* sequence = scheduler_.find(id);
            const auto known = requests_.find(id);
            if (sequence == nullptr || known == requests_.end()) continue;
            const int num_tokens = static_cast<int>(sequence->tokens.size());
            if (computes_tail(*sequence) && scheduler_.start_tail(id)) {
                refuse(*known->second.announced, "the decode replica computes the rest itself");
                continue;
            }
            known->second.offered = true;
            side_->offer(*known->second.announced, num_tokens, sequence->num_cached, sequence->blocks);
        }
    }

    // Where little is left behind what this replica has already, pushing it would cost more.
    bool computes_tail(const schedule::Sequence& sequence) const {
        const int tail = static_cast<int>(sequence.tokens.size()) - sequence.num_cached;
        return sequence.num_cached > 0 && tail <= scheduler_.max_tail_tokens();
    }

    void ready(transfer::DecodeEvent& event) {
        const auto known = requests_.find(event.id);
        if (known == requests_.end() || known->second.attempt() != event.attempt) return;
        if (event.first.tokens.empty()) {
            return fail(event.id, "the prefill replica sent no first token");
        }
        const schedule::Sequence* sequence = scheduler_.find(event.id);
        if (sequence != nullptr) plant_kv_fault(pools_, sequence->blocks);
        if (sequence != nullptr && sequence->hash_logits) {
            const auto hashes =
                hash_kv(pools_, sequence->blocks, static_cast<int>(sequence->tokens.size()));
            event.first.kv_hashes.insert(event.first.kv_hashes.end(), hashes.begin(), hashes.end());
        }
        auto started = scheduler_.start_decode(event.id, event.first.tokens.front(), event.first.cached_tokens,
                                               std::move(event.first.mtp_hidden));
        side_->acknowledge(event.id);
        known->second.offered = false;
        if (!started) return fail(event.id, started.message());
        started->cached_tokens = event.first.cached_tokens;
        started->logits_hashes = std::move(event.first.logits_hashes);
        started->kv_hashes = std::move(event.first.kv_hashes);
        started->logprobs = std::move(event.first.logprobs);
        started->prompt_logprobs = std::move(event.first.prompt_logprobs);
        if (started->finish != FinishReason::kNone) ended(event.id);
        told_.push_back(*std::move(started));
    }

    void cancelled(const transfer::DecodeEvent& event) {
        const auto known = requests_.find(event.id);
        if (known == requests_.end()) {
            early_.erase(event.id);
            refuse(event, event.why);
            if (!gone_.contains(event.id)) remember(event.id, {event.why, false});
            return;
        }
        // Of an attempt before the one that runs, or that has been asked for.
        const auto sent = sent_back_.find(event.id);
        const uint32_t present = sent == sent_back_.end() ? known->second.attempt() : sent->second.attempt;
        if (present != 0 && present != event.attempt) return;
        // Past the handoff it no longer needs its prefill replica.
        if (known->second.announced && !known->second.offered && runs(event.id)) return;
        fail(event.id, event.why);
    }

    // The prefill side could not wait for this one any longer: it computes the request again.
    void lease_ran_out(const transfer::DecodeEvent& event) {
        const auto known = requests_.find(event.id);
        if (known == requests_.end()) {
            // Sent back once it comes.
            if (const auto early = early_.take(event.id)) {
                early_.put(event.id, early->attempt == event.attempt ? event : *early);
            }
            // Cancelled meanwhile: this is the last that is heard of its blocks.
            return scheduler_.release(event.id);
        }
        // It may have begun to compute its tail here before this was heard.
        if (known->second.attempt() != event.attempt || runs(event.id)) return;
        known->second.offered = false;
        const auto lost = scheduler_.lost(event.id);
        if (!lost) return fail(event.id, lost.message());
        send_back(lost.value(), event.attempt + 1);
    }

    bool runs(RequestId id) const {
        const schedule::Sequence* sequence = scheduler_.find(id);
        return sequence != nullptr && sequence->state == schedule::State::kRunning;
    }

    void tell(RequestId id, const std::string& why) {
        told_.push_back(aborted(id, why));
    }

    void give_up(RequestId id, const std::string& why) {
        early_.erase(id);
        if (const auto sent = sent_back_.find(id); sent != sent_back_.end()) {
            side_->cancel(id, sent->second.attempt, sent->second.prefill_replica, why);
            sent_back_.erase(sent);
        }
        const auto known = requests_.find(id);
        if (known == requests_.end()) return;
        scheduler_.abort(id);
        if (known->second.announced) refuse(*known->second.announced, why);
        if (!known->second.offered && scheduler_.is_held(id)) scheduler_.release(id);
        ended(id);
    }

    // Prompt and output so far become the prompt of a new attempt, on a prefill replica that lives;
    // where none is connected, on the first one that is until then.
    void send_back(const schedule::Retracted& retracted, uint32_t attempt,
                   TimePoint until = after(kReconnectSeconds)) {
        const auto known = requests_.find(retracted.id);
        if (known == requests_.end()) return;
        known->second.announced.reset();
        if (attempt > transfer::kMaxAttempts) {
            return fail(retracted.id, fmt::format("it has been computed {} times", attempt - 1));
        }
        Request again = known->second.request;
        again.prompt = retracted.tokens;
        for (size_t i = 0; i < prefill_.size(); ++i) {
            again.prefill_replica =
                static_cast<int>((known->second.request.prefill_replica + i) % prefill_.size());
            const int node = prefill_[again.prefill_replica].node;
            const uint64_t connection = fabric_->peer_connection(node);
            if (connection == 0 || !side_->retract(again, attempt, retracted.num_output)) continue;
            sent_back_[retracted.id] = {retracted, attempt, again.prefill_replica, connection, until};
            return;
        }
        if (Clock::now() < until) {
            sent_back_[retracted.id] = {retracted, attempt, again.prefill_replica, 0, until};
            return;
        }
        fail(retracted.id, fmt::format("no prefill host could be asked to compute the request again for {} s",
                                       kReconnectSeconds));
    }

    // The prefill host that was asked is gone, or may not have heard of it: another one, or the same
    // again, computes it.
    void send_back_lost() {
        if (sent_back_.empty()) return;
        const auto connection = [this](const comm::Destination& to) { return fabric_->peer_connection(to.node); };
        const bool some = std::any_of(prefill_.begin(), prefill_.end(),
                                      [&](const auto& to) { return connection(to) != 0; });
        std::vector<SentBack> lost;
        for (const auto& [id, sent] : sent_back_) {
            const bool waits = sent.connection == 0;
            if (waits ? some || Clock::now() >= sent.until
                      : connection(prefill_[sent.prefill_replica]) != sent.connection) {
                lost.push_back(sent);
            }
        }
        for (const SentBack& sent : lost) {
            sent_back_.erase(sent.retracted.id);
            if (sent.connection == 0) {
                send_back(sent.retracted, sent.attempt, sent.until);
            } else {
                send_back(sent.retracted, sent.attempt + 1);
            }
        }
    }

    schedule::Scheduler& scheduler_;
    const std::function<void()> copy_kv_;
    const std::vector<transfer::Pool> pools_;
    const std::vector<comm::Destination> prefill_;
    comm::Fabric* const fabric_;
    std::unique_ptr<transfer::DecodeSide> side_;
    std::unordered_map<RequestId, Known> requests_;
    std::unordered_map<RequestId, SentBack> sent_back_;
    EarlyNews<transfer::DecodeEvent> early_{kMaxEarly};  // announced, not yet known; or its lease ran out
    EarlyNews<Gone> gone_{kMaxEarly};         // cancelled before they were known, or ended
    std::vector<TokenOut> told_;              // for the next publication
};

}  // namespace

std::unique_ptr<KvHandoff> make_decode_handoff(schedule::Scheduler& scheduler,
                                               const transfer::DecodeSideOptions& options,
                                               std::function<void()> copy_kv) {
    return std::make_unique<DecodeHandoff>(scheduler, options, transfer::make_decode_side(options),
                                           std::move(copy_kv));
}

}  // namespace aerie::engine
