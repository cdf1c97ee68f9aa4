// What prefill and decode replicas ask their scheduler about a request that moves between them.
#include <algorithm>
#include <map>

#include "base/check.h"
#include "schedule/scheduler.h"

namespace aerie::schedule {
std::vector<RequestId> Scheduler::take_announcements() {
    std::vector<RequestId> result;
    if (options_.flavour != Flavour::kPrefill) return result;
    const int chunk = options_.chunked_prefill_size > 0 ? options_.chunked_prefill_size
                                                        : options_.max_prefill_tokens;
    const int64_t window = int64_t{2} * chunk;
    std::map<int, int64_t> work;  // decode replica → tokens announced and not yet planned
    for (const Sequence* sequence : running_)
        work[sequence->decode_replica] += sequence->prefill_end - sequence->num_planned;
    for (const Sequence* sequence : queue_)
        if (sequence->announced)
            work[sequence->decode_replica] += static_cast<int64_t>(sequence->tokens.size());
    for (Sequence* sequence : waiting_order()) {
        int64_t& announced = work[sequence->decode_replica];
        if (sequence->announced || (announced >= window && !sequence->retracted)) continue;
        sequence->announced = true;
        announced += static_cast<int64_t>(sequence->tokens.size());
        result.push_back(sequence->id);
    }
    return result;
}

void Scheduler::may_start(RequestId id) {
    if (Sequence* sequence = get(id)) sequence->may_start = true;
}

void Scheduler::release(RequestId id, uint32_t attempt) {
    for (const auto& sequence : ended_)
        if (sequence->id == id && sequence->attempt == attempt) sequence->held = false;
    Sequence* sequence = get(id);
    if (sequence && sequence->attempt == attempt && sequence->state == State::kPrefilled) {
        sequence->held = false;
        end(*sequence);
    }
    sweep();
}

bool Scheduler::is_held(RequestId id) const {
    const Sequence* sequence = find(id);
    if (sequence && sequence->held) return true;
    return std::any_of(ended_.begin(), ended_.end(),
                       [id](const auto& ended) { return ended->id == id && ended->held; });
}

void Scheduler::announced(RequestId id) {
    Sequence* sequence = get(id);
    if (!sequence || sequence->announced) return;
    sequence->announced = true;
    if (sequence->state != State::kExpected) return;  // retracted: has kept its place
    if (!sequence->keeps_order) sequence->order = next_order_++;
    enqueue(*sequence);
}

// Room for what its KV lacks, for what it gains soon, and for `reserved`: what those gain that were
// taken before it.
bool Scheduler::can_offer(Sequence& sequence, int64_t reserved) const {
    const int64_t wanted = static_cast<int64_t>(sequence.tokens.size()) - sequence.num_cached +
                           std::min(sequence.num_remaining(), options_.decode_reserve) +
                           kv_.page_size();
    return wanted <= kv_.free_tokens() - reserved;
}

std::vector<RequestId> Scheduler::take_offers() {
    std::vector<RequestId> result;
    if (queue_.empty() || !queue_.front()->announced) return result;
    int64_t reserved = 0;
    const auto reserve = [&](const Sequence& sequence) {
        reserved += std::min(sequence.num_remaining(), options_.decode_reserve);
    };
    for (const auto* taken : {&running_, &offered_})
        for (const Sequence* sequence : *taken) reserve(*sequence);
    while (!queue_.empty()) {
        Sequence& sequence = *queue_.front();
        // A retracted one that is not announced again keeps its place: what gets free is for it.
        if (!sequence.announced) break;
        const auto num_taken = running_.size() + offered_.size();
        if (static_cast<int>(num_taken) >= options_.max_running_requests) break;
        take_cached_prefix(sequence);
        if (!can_offer(sequence, reserved) && !fits_alone(sequence)) {
            give_back(sequence);
            break;
        }
        get_blocks(sequence);
        queue_.erase(queue_.begin());
        offered_.push_back(&sequence);
        set_state(sequence, State::kOffered);
        sequence.held = true;
        reserve(sequence);
        result.push_back(sequence.id);
    }
    return result;
}

Result<TokenOut> Scheduler::start_decode(RequestId id, int32_t first_token, int num_cached,
                                         std::string mtp_hidden) {
    Sequence* sequence = get(id);
    if (!sequence || sequence->state != State::kOffered)
        return error("request {} holds no blocks: it was aborted, or never offered", id);
    sequence->held = false;
    set_state(*sequence, State::kRunning);
    sequence->num_planned = sequence->num_computed = static_cast<int>(sequence->tokens.size());
    sequence->num_in_flight = 1;
    if (sequence->num_output() == 0) sequence->cached_prompt = num_cached;
    std::erase(offered_, sequence);
    running_.push_back(sequence);
    keep_prefix(*sequence);
    sequence->mtp_hidden = std::move(mtp_hidden);
    TokenOut out = gain(*sequence, {&first_token, 1});
    sweep();
    return out;
}

Result<Retracted> Scheduler::lost(RequestId id) {
    Sequence* sequence = get(id);
    const bool queued = sequence && sequence->state == State::kQueued;
    if (!sequence || (!queued && sequence->state != State::kOffered))
        return error("request {} waits neither for blocks nor for KV", id);
    give_back(*sequence);
    sequence->held = false;
    sequence->announced = false;
    sequence->keeps_order = true;
    std::erase(offered_, sequence);
    std::erase(queue_, sequence);
    if (sequence->retracted)
        enqueue(*sequence);
    else
        set_state(*sequence, State::kExpected);
    return Retracted{id, sequence->tokens, sequence->num_output()};
}

Status Scheduler::start_tail(RequestId id) {
    Sequence* sequence = get(id);
    if (!sequence || sequence->state != State::kOffered)
        return error("request {} holds no blocks: it was aborted, or never offered", id);
    const int num_tokens = static_cast<int>(sequence->tokens.size());
    if (num_tokens - sequence->num_cached > max_tail_tokens())
        return error("request {}: {} tokens behind its cached prefix, expected at most {}", id,
                     num_tokens - sequence->num_cached, max_tail_tokens());
    sequence->held = false;
    set_state(*sequence, State::kRunning);
    sequence->prefill_end = num_tokens;
    if (sequence->num_output() == 0) sequence->cached_prompt = sequence->num_cached;
    std::erase(offered_, sequence);
    running_.push_back(sequence);
    return {};
}

}  // namespace aerie::schedule
