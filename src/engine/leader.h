// Leader: the step loop of an attention replica, on the thread of its rank (tp 0, cp 0): receive,
// plan, run, sample, publish. All request state of the replica is here and in what it owns.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "engine/constraints.h"
#include "engine/drafting.h"
#include "engine/handoff.h"
#include "engine/inbox.h"
#include "engine/step_rows.h"
#include "engine/team.h"
#include "metrics/components.h"
#include "sample/row_sampler.h"
#include "sample/sampler.h"
#include "schedule/scheduler.h"

namespace aerie::engine {

// What the leader needs to know of its replica.
struct LeaderOptions {
    std::string name;  // "decode replica 1", for the log
    schedule::SchedulerOptions scheduler;
    sample::SamplerOptions sampler;
    int microbatches = 0;  // in flight; 0: chosen by the number of rows
    // Hashes of logits are told of all computed rows; else, where room for their logits is short, of those
    // that give a token.
    bool hashes_prompts = true;
    DraftingOptions drafting;
    metrics::AttentionMetrics metrics;
    ThreadPool* pool = nullptr;  // draws tokens; outlives the leader; null: its thread draws them all
    grammar::Compiler* grammars = nullptr;  // outlives the leader; null: no grammar can be obeyed
    // Where tokens go; does not block.
    std::function<void(std::vector<TokenOut>)> publish;
    // The answer to a FlushCache; `why`: it is not flushed. Does not block.
    std::function<void(uint64_t query, const std::string& why)> flushed;
};

class Leader {
  public:
    Leader(LeaderOptions options, Team& team);
    ~Leader();

    // How KV comes and goes; set before run(). It is made with scheduler() and may call wake().
    void set_handoff(std::unique_ptr<KvHandoff> handoff) { handoff_ = std::move(handoff); }
    schedule::Scheduler& scheduler() { return scheduler_; }
    // The ranks make the copies that the scheduler has listed. Leader thread.
    void copy_kv();

    void run();  // the loop, until stop()

    // Any thread.
    void put(Command command) { inbox_.put(std::move(command)); }
    void wake() { inbox_.news().notify(); }
    void stop();
    double idle_seconds() const;  // since the loop last went round, for the watchdog
    KvHandoff& handoff() { return *handoff_; }

  private:
    void receive();
    void receive_compiled();
    schedule::Plan plan();
    Status run_step(const schedule::Plan& plan);
    Status draft(const schedule::Plan& plan);
    void sample(const schedule::Plan& plan);
    void draw_ahead(const schedule::Plan& plan);
    void sample_entry(const schedule::PlanEntry& entry, int index);
    void note_prompt_logprobs(const schedule::PlanEntry& entry, int begin, int end);
    int check_drafts(const schedule::PlanEntry& entry, int index);
    Result<int32_t> sample_row(const schedule::Sequence& sequence, const float* logits,
                               std::span<const int32_t> output, int i);
    std::vector<TokenOut> end_step(const schedule::Plan& plan);
    void fail(const schedule::Plan& plan, const std::string& why);
    void tell(std::vector<TokenOut> tokens);
    void publish();
    void wait(uint64_t seen);

    void add_rows(const schedule::PlanEntry& entry);
    static int drafts_in(const schedule::PlanEntry& entry);
    std::optional<kernels::DrawParams> draw_on_card(const schedule::PlanEntry& entry) const;

    void forget_ended();
    void flush_cache();

    void log_prefill(const schedule::Plan& plan);
    void log_decode(const schedule::Plan& plan);
    void update_gauges(const schedule::Plan& plan);

    LeaderOptions options_;
    Team& team_;
    schedule::Scheduler scheduler_;
    sample::Sampler sampler_;
    sample::RowSampler row_sampler_;
    StepRows rows_;
    Drafting drafting_;
    Inbox inbox_;
    Constraints constraints_;
    std::unique_ptr<KvHandoff> handoff_;  // may wake the inbox until it has ended
    std::atomic<bool> stopping_{false};
    std::atomic<int64_t> last_round_ns_{0};

    std::vector<int> logits_begin_;         // [entries + 1] into the step's logits
    std::vector<int32_t> row_tokens_;       // of one entry with drafts
    std::vector<sample::Draw> draws_;       // rows that were drawn ahead
    std::vector<int> draw_of_;              // [entries] which of them; -1: none
    std::vector<int32_t> history_;          // output of one sequence and the step's tokens
    std::vector<int32_t> sampled_;          // of all entries
    std::vector<schedule::Advance> advances_;
    std::vector<bool> ends_;                // [entries] the step's last token ends it
    std::vector<TokenOut> outbox_;          // gained outside of a step
    std::vector<TokenOut> unpublished_;     // on a card: told while the next step runs
    std::unordered_map<RequestId, TimePoint> arrived_;            // not yet planned
    std::unordered_map<RequestId, std::vector<uint64_t>> hashes_;  // of a prompt not yet whole
    std::unordered_map<RequestId, std::vector<TokenLogprobs>> logprobs_;  // of the step's tokens
    std::unordered_map<RequestId, std::vector<TokenLogprobs>> prompt_logprobs_;  // not yet whole

    std::vector<std::pair<FlushCache, TimePoint>> flushes_;  // until when to wait for the last request

    uint64_t told_hits_[3] = {}, told_lost_pages_ = 0;  // of what the scheduler has counted
    int decode_steps_ = 0;
    int64_t tokens_in_window_ = 0;
    // Of late: requests that decode steps computed, tokens that these gained, drafts.
    double num_decoded_ = 0, num_gained_ = 0, num_drafted_ = 0, num_accepted_ = 0;
    TimePoint window_begin_ = Clock::now();
};

}  // namespace aerie::engine
