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
    for (Sequence* sequence : queue_) {
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

void Scheduler::release(RequestId id) {
    for (const auto& sequence : ended_)
        if (sequence->id == id) sequence->held = false;
    Sequence* sequence = get(id);
    if (sequence && sequence->state == State::kPrefilled) {
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
    sequence->order = next_order_++;
    enqueue(*sequence);
}

// Room for its KV, for what it gains soon, and for what those gain that were taken before it.
bool Scheduler::can_offer(const Sequence& sequence) const {
    int num_taken = 0;
    int64_t reserved = 0;
    for (const auto& [id, other] : sequences_) {
        if (other->state != State::kRunning && other->state != State::kOffered) continue;
        ++num_taken;
        reserved += std::min(other->num_remaining(), options_.decode_reserve);
    }
    const int64_t wanted = static_cast<int64_t>(sequence.tokens.size()) +
                           std::min(sequence.num_remaining(), options_.decode_reserve) +
                           kv_.page_size();
    return num_taken < options_.max_running_requests && wanted <= kv_.free_tokens() - reserved;
}

std::vector<RequestId> Scheduler::take_offers() {
    std::vector<RequestId> result;
    while (!queue_.empty()) {
        Sequence& sequence = *queue_.front();
        // A retracted one that is not announced again keeps its place: what gets free is for it.
        if (!sequence.announced || !can_offer(sequence)) break;
        const int num_blocks = kv_.blocks_for(static_cast<int64_t>(sequence.tokens.size()));
        CHECK(kv_.extend(sequence.blocks, num_blocks), "request {}", sequence.id);
        queue_.erase(queue_.begin());
        sequence.state = State::kOffered;
        sequence.held = true;
        result.push_back(sequence.id);
    }
    return result;
}

Result<TokenOut> Scheduler::start_decode(RequestId id, int32_t first_token) {
    Sequence* sequence = get(id);
    if (!sequence || sequence->state != State::kOffered)
        return error("request {} holds no blocks: it was aborted, or never offered", id);
    sequence->held = false;
    sequence->state = State::kRunning;
    sequence->num_planned = static_cast<int>(sequence->tokens.size());
    sequence->num_in_flight = 1;
    running_.push_back(sequence);
    TokenOut out = gain(*sequence, {&first_token, 1});
    sweep();
    return out;
}

}  // namespace aerie::schedule
