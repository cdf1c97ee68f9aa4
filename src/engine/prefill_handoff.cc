#include <algorithm>
#include <unordered_map>

#include "base/log.h"
#include "engine/handoff.h"
#include "engine/kv_probe.h"

namespace aerie::engine {
namespace {

// A prefill replica: each request asks its decode replica for blocks, is computed into them layer by
// layer, and leaves. Its client is told everything by the decode replica, errors too.
class PrefillHandoff final : public KvHandoff {
  public:
    PrefillHandoff(schedule::Scheduler& scheduler, transfer::PrefillSideOptions options)
        : scheduler_(scheduler), pools_(options.pools),
          side_(transfer::make_prefill_side(std::move(options))) {}

    void add(const Request& request) override { take(request, 1, 0); }

    void abort(RequestId id) override { give_up(id, "the request was cancelled"); }

    void fail(RequestId id, const std::string& why) override { give_up(id, why); }

    void receive(std::vector<TokenOut>&) override {
        for (auto& event : side_->poll()) handle(event);
        for (const RequestId id : scheduler_.take_announcements()) announce(id);
        free_quiet();
    }

    void planned(const schedule::Plan& plan, std::vector<TokenOut>&) override {
        chunks_.clear();
        for (const auto& entry : plan.prefill) {
            chunks_.push_back({.id = entry.sequence->id,
                               .first_token = entry.first,
                               .num_tokens = entry.num_tokens,
                               .blocks = entry.sequence->blocks});
        }
    }

    void layer_done(int cp_rank, int layer) override { side_->push(cp_rank, layer, chunks_); }

    // The first token travels with the KV.
    void sampled(std::vector<TokenOut>& out) override {
        for (TokenOut& first : out) {
            const schedule::Sequence* sequence = scheduler_.find(first.id);
            if (sequence != nullptr && sequence->hash_logits) {
                first.kv_hashes = hash_kv(pools_, sequence->blocks, sequence->prefill_end);
            }
            side_->done(first.id, first);
        }
        out.clear();
    }

  private:
    struct Attempt {
        uint32_t number;
        int decode_replica;
    };

    void take(const Request& request, uint32_t attempt, int num_output) {
        attempts_[request.id] = {attempt, request.decode_replica};
        if (Status added = scheduler_.add(request, num_output); !added) {
            give_up(request.id, added.message());
        }
    }

    void announce(RequestId id) {
        const schedule::Sequence* sequence = scheduler_.find(id);
        const auto attempt = attempts_.find(id);
        if (sequence == nullptr || attempt == attempts_.end()) return;
        side_->announce(id, attempt->second.number, attempt->second.decode_replica,
                        static_cast<int>(sequence->tokens.size()));
    }

    void handle(transfer::PrefillEvent& event) {
        using Kind = transfer::PrefillEvent::Kind;
        if (event.kind == Kind::kRetracted) {
            // Its acknowledgement may be on its way still; all has arrived, or it could not run there.
            if (attempts_.erase(event.id) > 0) scheduler_.release(event.id);
            return take(event.request, event.attempt, event.num_output);
        }
        const auto attempt = attempts_.find(event.id);
        if (attempt == attempts_.end() || attempt->second.number != event.attempt) return;
        switch (event.kind) {
            case Kind::kOffered: scheduler_.may_start(event.id); break;
            case Kind::kAcked: leave(event.id); break;
            case Kind::kCancelled:
                log_debug("request {}: given up by the decode side: {}", event.id, event.why);
                scheduler_.abort(event.id);
                leave(event.id);
                break;
            case Kind::kRetracted: break;
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
        leaving_.push_back(id);
        free_quiet();
    }

    // Blocks are free once nothing reads them any more.
    void free_quiet() {
        std::erase_if(leaving_, [&](RequestId id) {
            if (!side_->quiet(id)) return false;
            if (scheduler_.is_held(id)) scheduler_.release(id);
            if (!attempts_.contains(id)) side_->forget(id);
            return true;
        });
    }

    schedule::Scheduler& scheduler_;
    const std::vector<transfer::Pool> pools_;
    std::unique_ptr<transfer::PrefillSide> side_;
    std::unordered_map<RequestId, Attempt> attempts_;
    std::vector<RequestId> leaving_;          // ended, their source may still be read
    std::vector<transfer::PushChunk> chunks_;  // of the running step
};

}  // namespace

std::unique_ptr<KvHandoff> make_prefill_handoff(schedule::Scheduler& scheduler,
                                                transfer::PrefillSideOptions options) {
    return std::make_unique<PrefillHandoff>(scheduler, std::move(options));
}

}  // namespace aerie::engine
