#include "schedule/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace aerie::schedule {

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options), kv_(options.kv), ratio_(options.schedule_conservativeness) {
    if (options.prefix_cache) cache_ = std::make_unique<cache::PrefixCache>(kv_, options.kv.lower);
    const int chunk = options.chunked_prefill_size;
    CHECK(chunk == -1 || (chunk > 0 && chunk % options.kv.page_size == 0), "chunk {}, page {}",
          chunk, options.kv.page_size);
    CHECK(options.max_running_requests > 0, "{}", options.max_running_requests);
}

Scheduler::~Scheduler() = default;

void Scheduler::abort(RequestId id) {
    if (Sequence* sequence = get(id)) {
        end(*sequence);
        sweep();
    }
}

Status Scheduler::add(const Request& request, int num_output, uint32_t attempt) {
    if (sequences_.contains(request.id)) return error("request {} is known already", request.id);
    const auto num_tokens = static_cast<int64_t>(request.prompt.size());
    if (num_output < 0 || num_output >= num_tokens)
        return error(
            "request {} has {} tokens, of which {} are said to be output: a prompt is missing",
            request.id, num_tokens, num_output);
    // A prefill replica stores no output; elsewhere at least one token is to be gained.
    const int64_t room = options_.flavour == Flavour::kPrefill ? 0 : 1;
    if (num_tokens + room > max_request_tokens())
        return error(
            "The input ({} tokens) can never fit the KV cache: a request may use {} tokens of it, "
            "prompt and output.",
            num_tokens, max_request_tokens());

    auto sequence = std::make_unique<Sequence>();
    sequence->id = request.id;
    sequence->sampling = request.sampling;
    sequence->hash_logits = request.hash_logits;
    sequence->decode_replica = request.decode_replica;
    sequence->priority = request.priority;
    sequence->attempt = attempt;
    sequence->cache_salt = request.cache_salt;
    sequence->tokens = request.prompt;
    sequence->num_prompt = static_cast<int>(num_tokens) - num_output;
    sequence->output_limit = std::max(request.sampling.max_new_tokens, 1);
    if (options_.flavour != Flavour::kPrefill)
        sequence->output_limit = static_cast<int>(
            std::min<int64_t>(sequence->output_limit, max_request_tokens() - sequence->num_prompt));
    if (num_output >= sequence->output_limit)
        return error("request {} has {} output tokens already, the most is {}", request.id,
                     num_output, sequence->output_limit);
    sequence->retracted = attempt > 1 || num_output > 0;
    sequence->may_start = options_.flavour != Flavour::kPrefill;
    sequence->order = next_order_++;
    Sequence& added = *sequence;
    sequences_.emplace(request.id, std::move(sequence));
    ++num_in_state_[static_cast<size_t>(added.state)];
    if (options_.flavour == Flavour::kDecode)
        set_state(added, State::kExpected);
    else
        enqueue(added);
    return {};
}

int64_t Scheduler::max_request_tokens() const {
    const int64_t own = kv_.capacity() - kv_.page_size();
    return options_.max_request_tokens > 0 ? std::min(own, options_.max_request_tokens) : own;
}

void Scheduler::set_state(Sequence& sequence, State state) {
    --num_in_state_[static_cast<size_t>(sequence.state)];
    ++num_in_state_[static_cast<size_t>(state)];
    sequence.state = state;
}

void Scheduler::enqueue(Sequence& sequence) {
    set_state(sequence, options_.flavour == Flavour::kDecode ? State::kQueued : State::kWaiting);
    const auto before = [](const Sequence* a, const Sequence* b) {
        return a->retracted != b->retracted ? a->retracted : a->order < b->order;
    };
    queue_.insert(std::upper_bound(queue_.begin(), queue_.end(), &sequence, before), &sequence);
}

Plan Scheduler::plan() {
    Plan plan;
    if (options_.num_drafts > 0 && step_runs()) return plan;
    if (running_.empty() && queue_.empty()) ratio_.idle();
    plan.step = planned_steps_ + 1;
    const bool chunked = options_.chunked_prefill_size > 0;
    const int room = chunked ? options_.chunked_prefill_size : options_.max_prefill_tokens;
    const bool decodes = options_.flavour != Flavour::kPrefill;
    int num_rows = 0;  // of the running requests' next tokens
    if (decodes)
        for (const Sequence* sequence : decode_batch()) num_rows += decode_width(*sequence);
    if (decodes && options_.mixed_chunks && chunked && num_rows + kv_.page_size() <= room) {
        const bool fits = plan_decode(plan);
        plan_prefill(plan, room - num_rows, fits && plan.retracted.empty());
    } else {
        plan_prefill(plan, room, true);
        if (decodes && plan.empty()) plan_decode(plan);
    }
    if (plan.empty())
        plan.step = 0;
    else
        ++planned_steps_;
    return plan;
}

std::vector<TokenOut> Scheduler::on_result(const Plan& plan, std::span<const Advance> advances) {
    CHECK_EQ(plan.step, ended_steps_ + 1);
    ended_steps_ = plan.step;
    std::vector<TokenOut> gained;
    size_t next = 0;
    for (const auto* entries : {&plan.prefill, &plan.decode}) {
        for (const PlanEntry& entry : *entries) {
            Sequence& sequence = *entry.sequence;
            if (sequence.state != State::kEnded && entries == &plan.prefill) {
                sequence.num_computed = entry.first + entry.num_tokens;
                keep_prefix(sequence);
            }
            if (!entry.sample) continue;
            const bool has_tokens =
                next < advances.size() && advances[next].sequence == entry.sequence;
            const std::span<const int32_t> tokens =
                has_tokens ? advances[next++].tokens : std::span<const int32_t>();
            if (entry.sequence->state == State::kEnded) continue;
            CHECK(!tokens.empty(), "request {} has no token in step {}", entry.sequence->id,
                  plan.step);
            entry.sequence->num_decode_steps += entries == &plan.decode;
            gained.push_back(gain(*entry.sequence, tokens));
        }
    }
    CHECK(next == advances.size(), "advance {} of {} is out of order", next, advances.size());
    for (Sequence* sequence : running_) drop_replaced(*sequence);
    sweep();
    return gained;
}

FinishReason Scheduler::judge(const Sequence& sequence, int num_gained, int32_t token) const {
    const auto in = [token](const std::vector<int32_t>& ids) {
        return std::find(ids.begin(), ids.end(), token) != ids.end();
    };
    if ((!sequence.sampling.ignore_eos && in(options_.eos_ids)) ||
        in(sequence.sampling.stop_token_ids))
        return FinishReason::kStop;
    return sequence.num_output() + num_gained >= sequence.output_limit ? FinishReason::kLength
                                                                       : FinishReason::kNone;
}

TokenOut Scheduler::gain(Sequence& sequence, std::span<const int32_t> tokens) {
    CHECK(sequence.num_in_flight > 0, "request {}", sequence.id);
    --sequence.num_in_flight;
    TokenOut out;
    out.id = sequence.id;
    out.position = sequence.num_output();
    out.num_decode_steps = sequence.num_decode_steps;
    out.cached_tokens = sequence.cached_prompt;
    for (const int32_t token : tokens) {
        sequence.tokens.push_back(token);
        out.tokens.push_back(token);
        if (options_.flavour == Flavour::kPrefill) break;
        out.finish = judge(sequence, 0, token);
        if (out.finish != FinishReason::kNone) break;
    }
    if (out.finish == FinishReason::kStop) out.matched_token = sequence.tokens.back();
    sequence.num_computed = static_cast<int>(sequence.tokens.size()) - 1;
    if (options_.flavour == Flavour::kPrefill) {
        std::erase(running_, &sequence);
        set_state(sequence, State::kPrefilled);
    } else if (out.finish != FinishReason::kNone) {
        end(sequence);
    } else {
        sequence.num_planned = sequence.num_tokens() - 1;  // drafts may have been refused
    }
    return out;
}

void Scheduler::end(Sequence& sequence) {
    std::erase(queue_, &sequence);
    std::erase(running_, &sequence);
    std::erase(offered_, &sequence);
    set_state(sequence, State::kEnded);
    if (!sequence.blocks.empty()) keep_prefix(sequence);
    const auto it = sequences_.find(sequence.id);
    ended_.push_back(std::move(it->second));
    sequences_.erase(it);
}

// Frees what nobody uses any more.
void Scheduler::sweep() {
    std::erase_if(ended_, [this](const std::unique_ptr<Sequence>& sequence) {
        if (sequence->held || sequence->last_step > ended_steps_) return false;
        drop_replaced(*sequence);
        kv_.release(sequence->blocks);
        return true;
    });
}

Sequence* Scheduler::get(RequestId id) {
    const auto it = sequences_.find(id);
    return it == sequences_.end() ? nullptr : it->second.get();
}

const Sequence* Scheduler::find(RequestId id) const {
    return const_cast<Scheduler*>(this)->get(id);
}

bool Scheduler::idle() const { return sequences_.empty() && ended_.empty() && !step_runs(); }

Counts Scheduler::counts() const {
    return {.num_running = static_cast<int>(running_.size()),
            .num_waiting = num_in(State::kWaiting) + num_in(State::kExpected) + num_in(State::kQueued),
            .num_queued = num_in(State::kQueued),
            .num_offered = num_in(State::kOffered),
            .num_prefilled = num_in(State::kPrefilled),
            .used_tokens = kv_.used_tokens(),
            .capacity = kv_.capacity(),
            .free_tokens = kv_.free_tokens(),
            .evictable_tokens = cache_ ? cache_->evictable_tokens() : 0,
            .host_tokens = cache_ ? cache_->tokens_in(cache::Tier::kHost) : 0,
            .file_tokens = cache_ ? cache_->tokens_in(cache::Tier::kFile) : 0,
            .num_device_hits = num_device_hits_,
            .num_host_hits = cache_ ? cache_->restored_tokens(cache::Tier::kHost) : 0,
            .num_file_hits = cache_ ? cache_->restored_tokens(cache::Tier::kFile) : 0,
            .num_lost_pages = cache_ ? cache_->lost_pages() : 0,
            .num_retracted = num_retracted_,
            .new_token_ratio = ratio_.value()};
}

}  // namespace aerie::schedule
