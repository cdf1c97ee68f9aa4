#include "engine/leader.h"

#include <algorithm>

#include "base/log.h"
#include "base/thread.h"

namespace aerie::engine {
namespace {

int64_t now_ns() { return Clock::now().time_since_epoch().count(); }

// A client may hear of its last token before the other side has let go of the request's blocks.
constexpr double kFlushLimitSeconds = 1;

}  // namespace

Leader::Leader(LeaderOptions options, Team& team)
    : options_(std::move(options)), team_(team), scheduler_(options_.scheduler),
      sampler_(options_.sampler), row_sampler_(options_.sampler, options_.pool), rows_(options_.scheduler.kv.cp),
      drafting_(options_.drafting, options_.scheduler.kv.cp, options_.microbatches, team, sampler_),
      constraints_(options_.grammars, inbox_.news(), options_.metrics) {
    last_round_ns_ = now_ns();
    options_.metrics.max_total_num_tokens.set(static_cast<double>(scheduler_.kv().capacity()));
    options_.metrics.kv_available_tokens.set(static_cast<double>(scheduler_.kv().capacity()));
}

Leader::~Leader() = default;

void Leader::run() {
    while (!stopping_) {
        last_round_ns_ = now_ns();
        const uint64_t news = inbox_.news().value();
        receive();
        const schedule::Plan plan = this->plan();
        tell(std::exchange(outbox_, {}));
        // A decode step is launched at once, as a graph; a prompt's kernels one by one.
        if (plan.decode.empty() || !plan.prefill.empty()) publish();
        if (plan.empty()) {
            wait(news);
            continue;
        }
        Status ran = run_step(plan);
        if (ran) {
            sample(plan);
            ran = draft(plan);
        }
        if (ran)
            tell(end_step(plan));
        else
            fail(plan, ran.message());
    }
    publish();
}

void Leader::stop() {
    stopping_ = true;
    wake();
}

double Leader::idle_seconds() const { return static_cast<double>(now_ns() - last_round_ns_) * 1e-9; }

void Leader::receive() {
    for (Command& command : inbox_.take()) {
        if (auto* request = std::get_if<Request>(&command)) {
            arrived_[request->id] = Clock::now();
            if (!constraints_.hold(*request)) handoff_->add(*request);
        } else if (const auto* flush = std::get_if<FlushCache>(&command)) {
            flushes_.emplace_back(*flush, after(kFlushLimitSeconds));
        } else {
            constraints_.forget(std::get<AbortRequest>(command).id);
            handoff_->abort(std::get<AbortRequest>(command).id);
        }
    }
    receive_compiled();
    handoff_->receive(outbox_);
    flush_cache();
    forget_ended();
}

// Requests whose grammar was compiled meanwhile. One whose grammar is refused ends as one does whose
// step failed, so that the other side hears of it too.
void Leader::receive_compiled() {
    for (const Constraints::Ready& ready : constraints_.take_ready()) {
        handoff_->add(ready.request);
        const bool is_there = scheduler_.find(ready.request.id) != nullptr;  // else it is told why
        if (!ready.error.empty() && is_there) handoff_->fail(ready.request.id, ready.error);
    }
}

// Requests may end in many ways before their first step or in the middle of a prompt. What is noted
// of them goes once it outweighs what is noted of those that live.
void Leader::forget_ended() {
    constexpr size_t kSlack = 64;
    const auto ended = [this](const auto& noted) { return scheduler_.find(noted.first) == nullptr; };
    if (!prompt_logprobs_.empty()) std::erase_if(prompt_logprobs_, ended);  // few, but large
    if (arrived_.size() <= kSlack && hashes_.size() <= kSlack && constraints_.size() <= kSlack) return;
    const auto counts = scheduler_.counts();
    const size_t living = kSlack + 2 * static_cast<size_t>(counts.num_waiting + counts.num_running);
    if (arrived_.size() > living) std::erase_if(arrived_, ended);
    if (hashes_.size() > living) std::erase_if(hashes_, ended);
    if (constraints_.size() > living) {
        constraints_.forget_if([this](RequestId id) { return scheduler_.find(id) == nullptr; });
    }
}

void Leader::flush_cache() {
    std::erase_if(flushes_, [this](const auto& waiting) {
        const bool flushed = scheduler_.flush_cache();
        if (!flushed && Clock::now() < waiting.second) return false;
        const auto counts = scheduler_.counts();
        publish();  // the last tokens of what it has waited for
        options_.flushed(waiting.first.query,
                         flushed ? std::string()
                                 : fmt::format("{}: {} requests run and {} wait", options_.name,
                                               counts.num_running, counts.num_waiting));
        return true;
    });
}

schedule::Plan Leader::plan() {
    schedule::Plan plan = scheduler_.plan();
    copy_kv();  // before a transfer reads what the plan's requests have, or the step does
    handoff_->planned(plan, outbox_);
    if (!plan.retracted.empty()) {
        log_info("{}: KV cache pool is full. Retract requests. #retracted_reqs: {}, "
                 "#new_token_ratio: {:.4f}",
                 options_.name, plan.retracted.size(), scheduler_.counts().new_token_ratio);
        options_.metrics.num_retracted_requests.add(static_cast<double>(plan.retracted.size()));
    }
    for (const auto* entries : {&plan.prefill, &plan.decode}) {
        for (const auto& entry : *entries) {
            if (const auto arrived = arrived_.find(entry.sequence->id); arrived != arrived_.end()) {
                options_.metrics.queue_time.observe(seconds_since(arrived->second));
                arrived_.erase(arrived);
            }
        }
    }
    update_gauges(plan);
    return plan;
}

void Leader::copy_kv() {
    if (const auto copies = scheduler_.take_copies(); !copies.empty()) team_.copy(copies);
}

// The plan as rows of tokens, and the pass of all ranks over them.
Status Leader::run_step(const schedule::Plan& plan) {
    rows_.clear();
    logits_begin_.clear();
    for (const auto& entry : plan.prefill) add_rows(entry);
    for (const auto& entry : plan.decode) add_rows(entry);
    logits_begin_.push_back(rows_.num_logits_rows());
    rows_.cut_microbatches(options_.microbatches);
    options_.metrics.microbatches.set(rows_.num_microbatches());
    if (!plan.prefill.empty()) log_prefill(plan);
    const Phase phase = plan.prefill.empty() ? Phase::kDecode : Phase::kPrefill;
    constraints_.begin_step(plan);
    Status ran = team_.forward(
        rows_.input(phase),
        [this](int cp_rank, int layer) { handoff_->layer_done(cp_rank, layer); },
        [this] { publish(); });
    constraints_.end_step();
    return ran;
}

void Leader::add_rows(const schedule::PlanEntry& entry) {
    const schedule::Sequence& sequence = *entry.sequence;
    const int num_drafts = drafts_in(entry);
    auto tokens = std::span(sequence.tokens).subspan(entry.first, entry.num_tokens - num_drafts);
    if (num_drafts > 0) {
        row_tokens_.assign(tokens.begin(), tokens.end());
        row_tokens_.insert(row_tokens_.end(), sequence.drafts.begin(),
                           sequence.drafts.begin() + num_drafts);
        tokens = row_tokens_;
    }
    const int first_row = rows_.add_sequence(tokens, entry.first, sequence.blocks);
    logits_begin_.push_back(rows_.num_logits_rows());
    // For hashes all rows count, but after a retraction all except the last have been told before.
    const int known = entry.num_tokens - num_drafts;
    int first_logits = entry.sample ? known - 1 : entry.num_tokens;
    if (sequence.hash_logits && options_.hashes_prompts) {
        const int told = sequence.num_output() > 0 ? static_cast<int>(sequence.tokens.size()) - 1 : 0;
        first_logits = std::min(first_logits, std::max(0, told - entry.first));
    }
    if (const int from = sequence.first_prompt_logit(); from < entry.first + entry.num_tokens) {
        first_logits = std::min(first_logits, std::max(0, from - entry.first));
    }
    if (entry.first == sequence.num_cached) {  // from the start, perhaps once more
        hashes_.erase(sequence.id);
        prompt_logprobs_.erase(sequence.id);
    }
    for (int i = first_logits; i < entry.num_tokens; ++i) {
        const bool last = i + 1 == entry.num_tokens;
        rows_.add_logits_row(first_row + i, last ? draw_on_card(entry) : std::nullopt);
    }
}

Status Leader::draft(const schedule::Plan& plan) {
    if (!options_.drafting.enabled) return {};
    int first_row = 0, index = 0;
    size_t next = 0;
    for (const auto* entries : {&plan.prefill, &plan.decode}) {
        for (const auto& entry : *entries) {
            const bool gains = next < advances_.size() && advances_[next].sequence == entry.sequence;
            drafting_.add(entry, first_row,
                          gains ? advances_[next++].tokens : std::span<const int32_t>(), ends_[index]);
            first_row += entry.num_tokens;
            ++index;
        }
    }
    Status ran = drafting_.run(
        plan.prefill.empty() ? Phase::kDecode : Phase::kPrefill,
        [this](int cp_rank, int layer) { handoff_->layer_done(cp_rank, layer); });
    if (ran || options_.drafting.num_steps == 0) return ran;  // a prefill replica sends what it lacks
    log_warning("{}: step {} drafts nothing: {}", options_.name, plan.step, ran.message());
    return {};
}

std::vector<TokenOut> Leader::end_step(const schedule::Plan& plan) {
    std::vector<TokenOut> out = scheduler_.on_result(plan, advances_);
    const bool prefills = options_.scheduler.flavour == schedule::Flavour::kPrefill;
    for (TokenOut& token : out) {
        if (const auto hashes = hashes_.find(token.id); hashes != hashes_.end()) {
            token.logits_hashes = std::move(hashes->second);
            hashes_.erase(hashes);
        }
        if (const auto logprobs = logprobs_.find(token.id); logprobs != logprobs_.end()) {
            token.logprobs = std::move(logprobs->second);
        }
        if (const auto prompt = prompt_logprobs_.find(token.id); prompt != prompt_logprobs_.end()) {
            token.prompt_logprobs = std::move(prompt->second);
            prompt_logprobs_.erase(prompt);
        }
        tokens_in_window_ += static_cast<int64_t>(token.tokens.size());
        if (token.finish != FinishReason::kNone || prefills) constraints_.forget(token.id);
    }
    logprobs_.clear();
    if (!plan.decode.empty()) log_decode(plan);
    handoff_->sampled(out);
    return out;
}

// A step that could not be computed ends its requests, nothing else.
void Leader::fail(const schedule::Plan& plan, const std::string& why) {
    log_error("{}: step {} failed: {}", options_.name, plan.step, why);
    publish();  // what was told before it
    for (const auto* entries : {&plan.prefill, &plan.decode}) {
        for (const auto& entry : *entries) {
            if (entry.sequence->state != schedule::State::kEnded) handoff_->fail(entry.sequence->id, why);
        }
    }
    (void)scheduler_.on_result(plan, {});
}

// On a card the next step comes first: its time is that of a step, the leader's comes on top.
void Leader::tell(std::vector<TokenOut> tokens) {
    if (unpublished_.empty())
        unpublished_ = std::move(tokens);
    else
        std::ranges::move(tokens, std::back_inserter(unpublished_));
    if (!team_.launches_steps()) publish();
}

void Leader::publish() {
    if (!unpublished_.empty()) options_.publish(std::exchange(unpublished_, {}));
}

// Nothing can be planned: sleeps until something comes. The limit only keeps the watchdog fed.
void Leader::wait(uint64_t seen) {
    if (scheduler_.idle()) {
        options_.metrics.gen_throughput.set(0);
        window_begin_ = Clock::now();
        tokens_in_window_ = 0;
    }
    inbox_.news().wait(seen, after(0.2));
}

}  // namespace aerie::engine
