#include <unordered_map>

#include "engine/early_news.h"
#include "engine/handoff.h"
#include "engine/kv_probe.h"
#include "request/convert.h"

namespace aerie::engine {
namespace {

// Requests that are remembered before they are known, and after they have ended.
constexpr size_t kMaxEarly = 4096;

// A decode replica: requests enter with their KV, pushed by a prefill replica into blocks that were
// reserved for it. Only this side talks to the client.
class DecodeHandoff final : public KvHandoff {
  public:
    DecodeHandoff(schedule::Scheduler& scheduler, transfer::DecodeSideOptions options,
                  std::function<void()> copy_kv)
        : scheduler_(scheduler), copy_kv_(std::move(copy_kv)), pools_(options.pools), num_prefill_(options.prefill.size()),
          prefill_nodes_(options.prefill), fabric_(options.fabric),
          side_(transfer::make_decode_side(std::move(options))) {}

    void add(const Request& request) override {
        if (const auto why = gone_.take(request.id)) return tell(request.id, *why);
        if (Status added = scheduler_.add(request); !added) {
            told_.push_back(aborted(request.id, added.message(), ErrorKind::kBadRequest));
            return;
        }
        requests_[request.id].request = request;
        if (const auto early = early_.take(request.id)) announced(*early);
    }

    void abort(RequestId id) override { give_up(id, "the request was cancelled"); }

    void fail(RequestId id, const std::string& why) override {
        tell(id, why);
        give_up(id, why);
    }

    void receive(std::vector<TokenOut>& out) override {
        for (auto& event : side_->poll()) handle(event);
        forget_lost();
        send_back_lost();
        out.insert(out.end(), told_.begin(), told_.end());
        told_.clear();
    }

    void planned(const schedule::Plan& plan, std::vector<TokenOut>& out) override {
        for (const auto& retracted : plan.retracted) {
            if (const auto known = requests_.find(retracted.id); known != requests_.end()) {
                send_back(retracted, known->second.attempt + 1);
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
        uint32_t attempt = 0;      // 0: not announced
        int prefill_replica = 0;   // of this attempt
        bool offered = false;      // the transfer holds its blocks
    };

    // A retracted request that a prefill replica is to compute again, and has not announced.
    struct SentBack {
        schedule::Retracted retracted;
        uint32_t attempt;
        int prefill_replica;
        uint32_t epoch;  // of its host
    };

    void ended(RequestId id) {
        requests_.erase(id);
        gone_.put(id, "the request has ended");
    }

    void handle(transfer::DecodeEvent& event) {
        using Kind = transfer::DecodeEvent::Kind;
        switch (event.kind) {
            case Kind::kAnnounced: announced(event); break;
            case Kind::kReady: ready(event); break;
            case Kind::kCancelled: cancelled(event); break;
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
                gone_.put(oldest->first, why);
            }
            return;
        }
        known->second.attempt = event.attempt;
        known->second.prefill_replica = event.prefill_replica;
        sent_back_.erase(event.id);
        scheduler_.announced(event.id);
    }

    void refuse(const transfer::DecodeEvent& event, const std::string& why) {
        side_->cancel(event.id, event.attempt, event.prefill_replica, why);
    }

    // What a life of a prefill host has announced, its next one does not know.
    void forget_lost() {
        early_.erase_if([this](const transfer::DecodeEvent& event) {
            return fabric_->peer_epoch(prefill_nodes_[event.prefill_replica].node) != event.epoch;
        });
    }

    void make_offers() {
        const std::vector<RequestId> offers = scheduler_.take_offers();
        copy_kv_();
        for (const RequestId id : offers) {
            const schedule::Sequence* sequence = scheduler_.find(id);
            const auto known = requests_.find(id);
            if (sequence == nullptr || known == requests_.end()) continue;
            known->second.offered = true;
            side_->offer(id, known->second.attempt, known->second.prefill_replica,
                         static_cast<int>(sequence->tokens.size()), sequence->blocks);
        }
    }

    void ready(transfer::DecodeEvent& event) {
        const auto known = requests_.find(event.id);
        if (known == requests_.end() || known->second.attempt != event.attempt) return;
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
        auto started = scheduler_.start_decode(event.id, event.first.tokens.front());
        side_->acknowledge(event.id);
        known->second.offered = false;
        if (!started) return fail(event.id, started.message());
        started->cached_tokens = event.first.cached_tokens;
        started->logits_hashes = std::move(event.first.logits_hashes);
        started->kv_hashes = std::move(event.first.kv_hashes);
        started->logprobs = std::move(event.first.logprobs);
        if (started->finish != FinishReason::kNone) ended(event.id);
        told_.push_back(*std::move(started));
    }

    void cancelled(const transfer::DecodeEvent& event) {
        const auto known = requests_.find(event.id);
        if (known == requests_.end()) {
            early_.erase(event.id);
            if (!gone_.contains(event.id)) gone_.put(event.id, event.why);
            return;
        }
        if (known->second.attempt != 0 && known->second.attempt != event.attempt) return;
        // Past the handoff it no longer needs its prefill replica.
        if (known->second.attempt != 0 && !known->second.offered &&
            scheduler_.find(event.id) != nullptr &&
            scheduler_.find(event.id)->state == schedule::State::kRunning) {
            return;
        }
        fail(event.id, event.why);
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
        if (known->second.offered || known->second.attempt != 0) {
            side_->cancel(id, known->second.attempt, known->second.prefill_replica, why);
        }
        if (!known->second.offered && scheduler_.is_held(id)) scheduler_.release(id);
        ended(id);
    }

    // Prompt and output so far become the prompt of a new attempt, on a prefill replica that lives.
    void send_back(const schedule::Retracted& retracted, uint32_t attempt) {
        const auto known = requests_.find(retracted.id);
        if (known == requests_.end()) return;
        known->second.attempt = 0;
        Request again = known->second.request;
        again.prompt = retracted.tokens;
        for (size_t i = 0; i < num_prefill_; ++i) {
            again.prefill_replica =
                static_cast<int>((known->second.request.prefill_replica + i) % num_prefill_);
            const int node = prefill_nodes_[again.prefill_replica].node;
            const uint32_t epoch = fabric_->peer_epoch(node);
            if (epoch == 0 || !side_->retract(again, attempt, retracted.num_output)) continue;
            sent_back_[retracted.id] = {retracted, attempt, again.prefill_replica, epoch};
            return;
        }
        fail(retracted.id, "the request was retracted and no prefill host lives to compute it again");
    }

    // The prefill host that had it is gone: another one, or its next life, computes it.
    void send_back_lost() {
        std::vector<SentBack> lost;
        for (const auto& [id, sent] : sent_back_) {
            const int node = prefill_nodes_[sent.prefill_replica].node;
            if (fabric_->peer_epoch(node) != sent.epoch) lost.push_back(sent);
        }
        for (const SentBack& sent : lost) {
            sent_back_.erase(sent.retracted.id);
            send_back(sent.retracted, sent.attempt + 1);
        }
    }

    schedule::Scheduler& scheduler_;
    const std::function<void()> copy_kv_;
    const std::vector<transfer::Pool> pools_;
    const size_t num_prefill_;
    const std::vector<comm::Destination> prefill_nodes_;
    comm::Fabric* const fabric_;
    std::unique_ptr<transfer::DecodeSide> side_;
    std::unordered_map<RequestId, Known> requests_;
    std::unordered_map<RequestId, SentBack> sent_back_;
    EarlyNews<transfer::DecodeEvent> early_{kMaxEarly};  // announced, not yet known
    EarlyNews<std::string> gone_{kMaxEarly};  // cancelled before they were known, or ended: why
    std::vector<TokenOut> told_;              // for the next publication
};

}  // namespace

std::unique_ptr<KvHandoff> make_decode_handoff(schedule::Scheduler& scheduler,
                                               transfer::DecodeSideOptions options,
                                               std::function<void()> copy_kv) {
    return std::make_unique<DecodeHandoff>(scheduler, std::move(options), std::move(copy_kv));
}

}  // namespace aerie::engine
