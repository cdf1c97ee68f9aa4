#include "engine/leader.h"

#include <algorithm>

#include "base/log.h"
#include "base/thread.h"

namespace aerie::engine {
namespace {

int64_t now_ns() { return Clock::now().time_since_epoch().count(); }

// Rows that a microbatch has at least where their number is given, and where it is chosen.
constexpr int kMinRowsGiven = 2;
constexpr int kMinRowsChosen = 4;

// A client may hear of its last token before the other side has let go of the request's blocks.
constexpr double kFlushLimitSeconds = 1;

}  // namespace

Leader::Leader(LeaderOptions options, Team& team)
    : options_(std::move(options)), team_(team), scheduler_(options_.scheduler),
      sampler_(options_.sampler), rows_(options_.scheduler.kv.cp) {
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
        if (Status ran = run_step(plan); !ran) {
            fail(plan, ran.message());
            continue;
        }
        publish(sample(plan));
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
            handoff_->add(*request);
        } else if (const auto* flush = std::get_if<FlushCache>(&command)) {
            flushes_.emplace_back(*flush, after(kFlushLimitSeconds));
        } else {
            handoff_->abort(std::get<AbortRequest>(command).id);
        }
    }
    handoff_->receive(outbox_);
    flush_cache();
    forget_ended();
}

// Requests may end in many ways before their first step or in the middle of a prompt. What is noted
// of them goes once it outweighs what is noted of those that live.
void Leader::forget_ended() {
    constexpr size_t kSlack = 64;
    if (arrived_.size() <= kSlack && hashes_.size() <= kSlack) return;
    const auto ended = [this](const auto& noted) { return scheduler_.find(noted.first) == nullptr; };
    const auto counts = scheduler_.counts();
    const size_t living = kSlack + 2 * static_cast<size_t>(counts.num_waiting + counts.num_running);
    if (arrived_.size() > living) std::erase_if(arrived_, ended);
    if (hashes_.size() > living) std::erase_if(hashes_, ended);
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
    const int microbatches = choose_microbatches();
    rows_.cut_microbatches(microbatches);
    options_.metrics.microbatches.set(microbatches);
    if (!plan.prefill.empty()) log_prefill(plan);
    const Phase phase = plan.prefill.empty() ? Phase::kDecode : Phase::kPrefill;
    return team_.forward(rows_.input(phase),
                         [this](int cp_rank, int layer) { handoff_->layer_done(cp_rank, layer); });
}

void Leader::add_rows(const schedule::PlanEntry& entry) {
    const schedule::Sequence& sequence = *entry.sequence;
    const int first_row = rows_.add_sequence(
        std::span(sequence.tokens).subspan(entry.first, entry.num_tokens), entry.first,
        sequence.blocks);
    logits_begin_.push_back(rows_.num_logits_rows());
    if (sequence.hash_logits) {
        // After a retraction all but the last position have been told before.
        const int told = sequence.num_output() > 0 ? static_cast<int>(sequence.tokens.size()) - 1 : 0;
        for (int i = std::max(0, told - entry.first); i < entry.num_tokens; ++i) {
            rows_.add_logits_row(first_row + i);
        }
    }
    const int last_row = first_row + entry.num_tokens - 1;
    if (entry.sample && rows_.last_logits_row() != last_row) rows_.add_logits_row(last_row);
}

// As many as are asked for, else two: then attention and experts work at the same time. Each keeps a
// few rows, so that cutting a step pays.
int Leader::choose_microbatches() const {
    const bool given = options_.microbatches > 0;
    const int most = given ? options_.microbatches : 2;
    return std::clamp(rows_.num_rows() / (given ? kMinRowsGiven : kMinRowsChosen), 1, most);
}

std::vector<TokenOut> Leader::sample(const schedule::Plan& plan) {
    std::vector<schedule::Advance> advances;
    sampled_.assign(plan.prefill.size() + plan.decode.size(), 0);
    int index = 0;
    for (const auto& entry : plan.prefill) sample_entry(entry, index++, advances);
    for (const auto& entry : plan.decode) sample_entry(entry, index++, advances);
    std::vector<TokenOut> out = scheduler_.on_result(plan, advances);
    for (TokenOut& token : out) {
        if (const auto hashes = hashes_.find(token.id); hashes != hashes_.end()) {
            token.logits_hashes = std::move(hashes->second);
            hashes_.erase(hashes);
        }
        if (const auto logprobs = logprobs_.find(token.id); logprobs != logprobs_.end()) {
            token.logprobs.push_back(std::move(logprobs->second));
        }
    }
    logprobs_.clear();
    tokens_in_window_ += static_cast<int64_t>(out.size());
    if (!plan.decode.empty()) log_decode(plan);
    handoff_->sampled(out);
    return out;
}

void Leader::sample_entry(const schedule::PlanEntry& entry, int index,
                          std::vector<schedule::Advance>& advances) {
    schedule::Sequence& sequence = *entry.sequence;
    if (sequence.state == schedule::State::kEnded) return;  // aborted since
    const ConstView logits = team_.logits();
    const int begin = logits_begin_[index], end = logits_begin_[index + 1];
    if (sequence.hash_logits) {
        auto& hashes = hashes_[sequence.id];
        for (int row = begin; row < end; ++row) {
            hashes.push_back(sample::hash_logits(logits.row_as<float>(row), static_cast<int>(logits.cols)));
        }
    }
    if (!entry.sample) return;
    auto token = sampler_.sample(logits.row_as<float>(end - 1), sequence.sampling,
                                 std::span(sequence.tokens).subspan(sequence.num_prompt),
                                 static_cast<int64_t>(sequence.tokens.size()));
    if (!token) return handoff_->fail(sequence.id, token.message());
    if (sequence.sampling.num_top_logprobs >= 0) {
        logprobs_[sequence.id] =
            sampler_.logprobs(logits.row_as<float>(end - 1), sequence.sampling, *token);
    }
    sampled_[index] = *token;
    advances.push_back({&sequence, std::span(&sampled_[index], 1)});
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
