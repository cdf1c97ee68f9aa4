#include "engine/leader.h"

#include <algorithm>

#include "base/log.h"
#include "base/thread.h"

namespace aerie::engine {
namespace {

int64_t now_ns() { return Clock::now().time_since_epoch().count(); }

// Of the positions that it computes, those that hold drafts.
int drafts_in(const schedule::PlanEntry& entry) {
    const auto known = static_cast<int>(entry.sequence->tokens.size());
    return std::max(entry.first + entry.num_tokens - known, 0);
}

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
        publish(std::exchange(outbox_, {}));
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
            publish(end_step(plan));
        else
            fail(plan, ran.message());
    }
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
    Status ran = team_.forward(rows_.input(phase), [this](int cp_rank, int layer) {
        handoff_->layer_done(cp_rank, layer);
    });
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
    for (int i = first_logits; i < entry.num_tokens; ++i) rows_.add_logits_row(first_row + i);
}

// Draws the tokens of the step's rows; the scheduler is told in end_step().
void Leader::sample(const schedule::Plan& plan) {
    advances_.clear();
    sampled_.clear();
    sampled_.reserve(rows_.num_logits_rows());  // the advances point into it
    ends_.assign(plan.prefill.size() + plan.decode.size(), false);
    draw_ahead(plan);
    int index = 0;
    for (const auto& entry : plan.prefill) sample_entry(entry, index++);
    for (const auto& entry : plan.decode) sample_entry(entry, index++);
}

// On all threads the tokens that depend on nothing which this step has yet to find out, an accepted draft or
// a grammar's place.
void Leader::draw_ahead(const schedule::Plan& plan) {
    draws_.clear();
    draw_of_.clear();
    const ConstView logits = team_.logits();
    for (const auto* entries : {&plan.prefill, &plan.decode}) {
        for (const auto& entry : *entries) {
            const schedule::Sequence& sequence = *entry.sequence;
            const bool alone = entry.sample && drafts_in(entry) == 0 &&
                               sequence.state != schedule::State::kEnded &&
                               sequence.sampling.grammar.kind == Grammar::Kind::kNone;
            draw_of_.push_back(alone ? static_cast<int>(draws_.size()) : -1);
            if (!alone) continue;
            const int row = logits_begin_[draw_of_.size()] - 1;
            draws_.push_back({.logits = logits.row_as<float>(row),
                              .params = &sequence.sampling,
                              .output = std::span(sequence.tokens).subspan(sequence.num_prompt),
                              .position = static_cast<int64_t>(sequence.tokens.size()),
                              .token = std::nullopt});
        }
    }
    row_sampler_.sample(draws_);
}

void Leader::sample_entry(const schedule::PlanEntry& entry, int index) {
    schedule::Sequence& sequence = *entry.sequence;
    if (sequence.state == schedule::State::kEnded) return;  // aborted since
    const int begin = logits_begin_[index], end = logits_begin_[index + 1];
    const int num_drafts = drafts_in(entry);
    const size_t first = sampled_.size();
    int num_gained = 0;
    if (entry.sample) {
        num_gained = check_drafts(entry, index);
        if (num_gained == 0) return;
        advances_.push_back({&sequence, std::span(sampled_).subspan(first)});
        ends_[index] = scheduler_.judge(sequence, num_gained, sampled_.back()) != FinishReason::kNone;
        if (entry.first >= sequence.prefill_end) {
            ++num_decoded_;
            num_gained_ += num_gained;
            num_drafted_ += num_drafts;
            num_accepted_ += num_gained - 1;
            if (!ends_[index]) sequence.draft_length.checked(num_drafts, num_gained - 1);
        }
    }
    if (sequence.hash_logits) {
        const ConstView logits = team_.logits();
        auto& hashes = hashes_[sequence.id];
        for (int row = begin; row < end - 1 - num_drafts + std::max(num_gained, 1); ++row) {
            hashes.push_back(sample::hash_logits(logits.row_as<float>(row), static_cast<int>(logits.cols)));
        }
    }
    note_prompt_logprobs(entry, begin, end);
}

// Rows [begin, end) of the logits are the last ones of the entry; each predicts the token behind it.
void Leader::note_prompt_logprobs(const schedule::PlanEntry& entry, int begin, int end) {
    const schedule::Sequence& sequence = *entry.sequence;
    const int from = sequence.sampling.prompt_logprobs_from;
    if (from < 0 || sequence.num_output() > 0 || entry.first >= sequence.num_prompt - 1) return;
    const ConstView logits = team_.logits();
    auto& noted = prompt_logprobs_[sequence.id];
    for (int row = begin; row < end; ++row) {
        const int predicted = entry.first + entry.num_tokens - (end - row) + 1;
        if (predicted < from || predicted >= sequence.num_prompt) continue;
        noted.push_back(sampler_.logprobs(logits.row_as<float>(row), sequence.sampling,
                                          sequence.tokens[predicted]));
    }
}

// Draws the token behind the entry's known tokens, and behind each draft that was what was drawn before
// it, each with the random numbers of its own position: what would have been drawn one a step.
// Returns how many; 0: the request has failed.
int Leader::check_drafts(const schedule::PlanEntry& entry, int index) {
    const schedule::Sequence& sequence = *entry.sequence;
    const int num_drafts = drafts_in(entry), row = logits_begin_[index + 1] - 1 - num_drafts;
    const ConstView logits = team_.logits();
    std::span<const int32_t> output = std::span(sequence.tokens).subspan(sequence.num_prompt);
    if (num_drafts > 0) history_.assign(output.begin(), output.end());
    for (int i = 0;; ++i) {
        const float* of_row = logits.row_as<float>(row + i);
        const int ahead = draw_of_[index];
        auto token = ahead >= 0 ? *draws_[ahead].token : sample_row(sequence, of_row, output, i);
        if (!token) {
            handoff_->fail(sequence.id, token.message());
            return 0;
        }
        if (sequence.sampling.num_top_logprobs >= 0) {
            logprobs_[sequence.id].push_back(sampler_.logprobs(of_row, sequence.sampling, *token));
        }
        sampled_.push_back(*token);
        const int num_gained = i + 1;
        if (i == num_drafts || *token != sequence.drafts[i] ||
            scheduler_.judge(sequence, num_gained, *token) != FinishReason::kNone) {
            return num_gained;
        }
        history_.push_back(*token);
        output = history_;
    }
}

// The token behind those that the sequence has, output and i more, as its grammar allows it.
Result<int32_t> Leader::sample_row(const schedule::Sequence& sequence, const float* logits,
                                   std::span<const int32_t> output, int i) {
    const auto mask = constraints_.mask_for(sequence);
    if (!mask.ok()) return mask.error();
    auto token = sampler_.sample(logits, sequence.sampling, output,
                                 static_cast<int64_t>(sequence.tokens.size()) + i, mask.value());
    if (token) RETURN_IF_ERROR(constraints_.accept(sequence, *token));
    return token;
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
    for (const auto* entries : {&plan.prefill, &plan.decode}) {
        for (const auto& entry : *entries) {
            if (entry.sequence->state != schedule::State::kEnded) handoff_->fail(entry.sequence->id, why);
        }
    }
    (void)scheduler_.on_result(plan, {});
}

void Leader::publish(std::vector<TokenOut> tokens) {
    if (!tokens.empty()) options_.publish(std::move(tokens));
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
