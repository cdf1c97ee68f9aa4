#include "engine/constraints.h"

#include <algorithm>
#include <ctime>
#include <utility>


namespace aerie::engine {
namespace {

bool has_grammar(const SamplingParams& sampling) {
    return sampling.grammar.kind != Grammar::Kind::kNone;
}

std::string in_words(const grammar::Outcome& outcome) {
    return outcome.error.empty() ? std::string() : "the grammar is refused: " + outcome.error;
}

double processor_seconds() {  // of this thread: waiting for a core is not the grammar's fault
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs what a matcher does for a sequence, and charges `seconds_left` with it.
template <typename Run>
Status within(double& seconds_left, Run run) {
    const double begin = processor_seconds();
    RETURN_IF_ERROR(run());
    seconds_left -= processor_seconds() - begin;
    if (seconds_left > 0) return {};
    return error("the grammar takes too long: more than {} s at once or {} s per token. Ambiguous "
                 "rules (a rule that begins and ends with itself) are a common reason",
                 kMaxGrammarSeconds, kGrammarSecondsPerToken);
}

Status accept_within(double& seconds_left, grammar::Matcher& matcher, int32_t token) {
    seconds_left = std::min(seconds_left + kGrammarSecondsPerToken, kMaxGrammarSeconds);
    return within(seconds_left, [&] { return matcher.accept(token); });
}

}  // namespace

// Where the compiler's threads leave what they have; may outlive its owner.
struct Constraints::Mailbox {
    explicit Mailbox(Event& given) : news(&given) {}
    void put(RequestId id, const grammar::Outcome& outcome) {
        std::lock_guard lock(mutex);
        if (news == nullptr) return;
        outcomes.emplace_back(id, outcome);
        news->notify();
    }
    std::vector<std::pair<RequestId, grammar::Outcome>> take() {
        std::lock_guard lock(mutex);
        return std::exchange(outcomes, {});
    }
    void close() {
        std::lock_guard lock(mutex);
        news = nullptr;
    }

    std::mutex mutex;
    Event* news;
    std::vector<std::pair<RequestId, grammar::Outcome>> outcomes;
};

Constraints::Constraints(grammar::Compiler* compiler, Event& news,
                         metrics::AttentionMetrics metrics)
    : compiler_(compiler),
      metrics_(std::move(metrics)),
      mailbox_(std::make_shared<Mailbox>(news)) {}

Constraints::~Constraints() {
    mailbox_->close();
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    if (helper_.joinable()) helper_.join();
}

bool Constraints::hold(const Request& request) {
    if (!has_grammar(request.sampling)) return false;
    if (compiler_ == nullptr) {
        held_[request.id] = request;
        update_gauge();
        mailbox_->put(request.id, {.compiled = nullptr, .error = "this replica has no compiler"});
        return true;
    }
    if (const auto known = compiler_->find(request.sampling.grammar); known && known->compiled) {
        metrics_.num_grammar_cache_hits.add();
        states_[request.id].compiled = known->compiled;
        return false;
    }
    held_[request.id] = request;
    update_gauge();
    compiler_->compile(request.sampling.grammar,
                       [mailbox = mailbox_, id = request.id](const grammar::Outcome& outcome) {
                           mailbox->put(id, outcome);
                       });
    return true;
}

std::vector<Constraints::Ready> Constraints::take_ready() {
    std::vector<Ready> ready;
    for (auto& [id, outcome] : mailbox_->take()) {
        metrics_.grammar_compilation_time.observe(outcome.seconds);
        const auto held = held_.find(id);
        if (held == held_.end()) continue;  // aborted meanwhile
        if (outcome.compiled) states_[id].compiled = outcome.compiled;
        ready.push_back({std::move(held->second), in_words(outcome)});
        held_.erase(held);
    }
    if (!ready.empty()) update_gauge();
    return ready;
}

void Constraints::forget(RequestId id) {
    states_.erase(id);
    if (held_.erase(id) > 0) update_gauge();
}

void Constraints::update_gauge() {
    metrics_.num_grammar_queue_reqs.set(static_cast<double>(held_.size()));
}

void Constraints::forget_if(const std::function<bool(RequestId)>& ended) {
    std::erase_if(states_, [&](const auto& state) { return ended(state.first); });
}

void Constraints::begin_step(const schedule::Plan& plan) {
    jobs_.clear();
    for (const auto* entries : {&plan.prefill, &plan.decode}) {
        for (const auto& entry : *entries) {
            if (!entry.sample || !has_grammar(entry.sequence->sampling)) continue;
            State& state = states_[entry.sequence->id];
            if (state.num_tokens != entry.sequence->num_output())
                state = {.compiled = state.compiled};
            jobs_.push_back({&state, entry.sequence});
        }
    }
    next_job_ = 0;
    if (jobs_.empty()) return;
    if (!helper_.joinable()) helper_ = std::thread([this] { help(); });
    {
        std::lock_guard lock(mutex_);
        open_ = true;
    }
    changed_.notify_all();
}

// What the helper has not come to is filled here.
void Constraints::end_step() {
    if (jobs_.empty()) return;
    fill_jobs();
    std::unique_lock lock(mutex_);
    open_ = false;
    changed_.wait(lock, [this] { return !helping_; });
    jobs_.clear();
}

void Constraints::help() {
    set_thread_name("grammar-masks");
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return stopping_ || (open_ && next_job_ < jobs_.size()); });
        if (stopping_) return;
        helping_ = true;
        lock.unlock();
        fill_jobs();
        lock.lock();
        helping_ = false;
        changed_.notify_all();
    }
}

void Constraints::fill_jobs() {
    for (size_t i = next_job_++; i < jobs_.size(); i = next_job_++) {
        fill(*jobs_[i].state, *jobs_[i].sequence);
    }
}

void Constraints::fill(State& state, const schedule::Sequence& sequence) {
    if (state.filled) return;
    Status filled = prepare(state, sequence);
    if (filled) {
        filled =
            within(state.seconds_left, [&] { return state.matcher->fill_mask(state.mask); });
    }
    state.error = filled ? std::string() : filled.message();
    state.filled = true;
}

// A matcher that has accepted the output so far.
Status Constraints::prepare(State& state, const schedule::Sequence& sequence) {
    if (state.matcher) return {};
    const Grammar& grammar = sequence.sampling.grammar;
    if (!state.compiled) {
        // It came back from a retraction to a replica that never had it, or has forgotten it.
        if (compiler_ == nullptr) return error("this replica has no compiler of grammars");
        const grammar::Outcome outcome = compiler_->compile(grammar);
        if (!outcome.compiled) return Error{in_words(outcome)};
        state.compiled = outcome.compiled;
    }
    auto matcher = grammar::Matcher::create(state.compiled, grammar.after_reasoning);
    if (!matcher) return matcher.error();
    state.matcher = *std::move(matcher);
    state.mask.resize(state.matcher->num_words());
    state.num_tokens = 0;
    for (const int32_t token : std::span(sequence.tokens).subspan(sequence.num_prompt)) {
        RETURN_IF_ERROR(accept_within(state.seconds_left, *state.matcher, token));
        ++state.num_tokens;
    }
    return {};
}

Result<std::span<const uint32_t>> Constraints::mask_for(const schedule::Sequence& sequence) {
    if (!has_grammar(sequence.sampling)) return std::span<const uint32_t>();
    State& state = states_[sequence.id];
    fill(state, sequence);
    if (!state.error.empty()) return Error{state.error};
    return std::span<const uint32_t>(state.mask);
}

Status Constraints::accept(const schedule::Sequence& sequence, int32_t token) {
    if (!has_grammar(sequence.sampling)) return {};
    State& state = states_[sequence.id];
    RETURN_IF_ERROR(accept_within(state.seconds_left, *state.matcher, token));
    ++state.num_tokens;
    state.filled = false;
    return {};
}

}  // namespace aerie::engine
