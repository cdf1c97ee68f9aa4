// Constraints: the grammars that a replica's sequences must obey: which are being compiled, where
// each sequence stands, and which tokens it may gain next. Masks are computed beside the forward
// pass: the next token's does not depend on the logits.
//
// Leader thread, but for the compiler's calls and one thread that fills masks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/thread.h"
#include "grammar/compiler.h"
#include "grammar/matcher.h"
#include "metrics/components.h"
#include "schedule/plan.h"

namespace aerie::engine {

// Processor time that a sequence's grammar may take: so much at once, and so much more with each
// token. An ambiguous grammar takes longer with each token, and others wait for it.
constexpr double kMaxGrammarSeconds = 0.5;
constexpr double kGrammarSecondsPerToken = 0.01;

class Constraints {
  public:
    // `compiler` must outlive it; null: requests with a grammar are told that there is none. `news`
    // is notified when a request may go on.
    Constraints(grammar::Compiler* compiler, Event& news, metrics::AttentionMetrics metrics);
    ~Constraints();

    // Takes the request where its grammar is not compiled yet, and has it compiled; it comes out of
    // take_ready(). False: it may go on at once.
    bool hold(const Request& request);
    struct Ready {
        Request request;
        std::string error;  // of its grammar; empty: it may go on
    };
    std::vector<Ready> take_ready();
    // A request that has ended; unknown ids are ignored.
    void forget(RequestId id);
    size_t size() const { return states_.size(); }
    // Those for which ended(id) is true.
    void forget_if(const std::function<bool(RequestId)>& ended);

    // Around the forward pass of a plan: the masks of the sequences that it samples for are filled
    // between the two. A sequence that came from elsewhere, or was retracted, begins with the
    // output that it has. end_step() must follow begin_step() before the sequences change.
    void begin_step(const schedule::Plan& plan);
    void end_step();

    // For the next token of a sequence: bit i mod 32 of word i / 32 is token i's; empty: all are
    // allowed. Valid until accept(). The error is the client's.
    Result<std::span<const uint32_t>> mask_for(const schedule::Sequence& sequence);
    // The sequence has gained this token, which mask_for() allowed; before the next mask_for(). The
    // error is the client's.
    Status accept(const schedule::Sequence& sequence, int32_t token);

  private:
    struct State {
        std::shared_ptr<const grammar::Compiled> compiled;  // shared with the compiler's cache
        std::unique_ptr<grammar::Matcher> matcher = nullptr;
        int num_tokens = 0;  // of the output, that the matcher has accepted
        double seconds_left = kMaxGrammarSeconds;
        std::vector<uint32_t> mask = {};
        bool filled = false;     // mask is that of the next token
        std::string error = {};  // why there is none; empty: there is
    };
    struct Job {
        State* state;
        const schedule::Sequence* sequence;
    };
    struct Mailbox;

    void update_gauge();
    void fill(State& state, const schedule::Sequence& sequence);
    Status prepare(State& state, const schedule::Sequence& sequence);
    void fill_jobs();
    void help();

    grammar::Compiler* const compiler_;
    const metrics::AttentionMetrics metrics_;
    const std::shared_ptr<Mailbox> mailbox_;  // shared with the compiler's threads
    std::unordered_map<RequestId, Request> held_;
    std::unordered_map<RequestId, State> states_;

    std::vector<Job> jobs_;  // of the step
    std::atomic<size_t> next_job_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false;     // jobs_ may be worked on
    bool helping_ = false;  // the helper does
    bool stopping_ = false;
    std::thread helper_;  // from the first grammar on
};

}  // namespace aerie::engine
