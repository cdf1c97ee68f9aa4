// Dispatcher: gives every choice of a call a request number and replicas, hands it to the engine,
// brings its tokens back to its Generation, and takes it back where the client goes away.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "control/engine_client.h"
#include "frontend/generation.h"
#include "frontend/replica_choice.h"

namespace aerie::frontend {

struct DispatcherOptions {
    // Requests (choices) in flight at most, and what to say of it; 0: no limit.
    int max_in_flight = 0;
    std::string max_in_flight_reason;  // "max_running_requests 64 + max_queued_requests 8"
    std::optional<int64_t> random_seed;
    ReplicaChoiceOptions replica_choice = {};
};

// Any thread.
class Dispatcher : public std::enable_shared_from_this<Dispatcher> {
  public:
    // The engine must outlive this; its sink is set here and may be called after this has gone.
    static std::shared_ptr<Dispatcher> make(control::EngineClient& engine,
                                            const DispatcherOptions& options);

    // The generation's answer tells of all that comes of it, errors too.
    void run(const std::shared_ptr<Generation>& generation, std::vector<EncodedPrompt> prompts,
             Answer answer);

    // Ends the generation, where it still runs, with this error.
    void fail(const std::shared_ptr<Generation>& generation, const api::ApiError& error);
    // The prefix caches of all replicas were emptied.
    void forget_prefixes() { replica_choice_.forget_prefixes(); }
    // Ends the calls whose client named them `rid`, or all.
    void abort(const std::string& rid, bool all);

    int num_in_flight() const;
    void refuse_new();               // with 503, from now on
    bool wait_idle(double limit_s);  // false: requests are still in flight

    // Where the client gives none: derived from random_seed and the call's number, or else drawn.
    uint64_t draw_seed();

  private:
    struct Running {
        std::shared_ptr<Generation> generation;  // shared by the requests of its choices
        int choice;
        RequestId first_id;  // of the generation
        ReplicaChoice::Placed placed;
        PageChain text;  // prompt and output so far
    };

    Dispatcher(control::EngineClient& engine, const DispatcherOptions& options)
        : engine_(engine), options_(options), replica_choice_(options.replica_choice) {}
    // Numbers and replicas for all choices, or why not. The choices are then in running_.
    api::MaybeError admit(const std::shared_ptr<Generation>& generation,
                          const std::vector<EncodedPrompt>& prompts, RequestId& first_id,
                          std::vector<ReplicaChoice::Placed>& placed);
    void take(const std::vector<TokenOut>& outs);
    void retire(RequestId first_id, const Generation::Ended& ended);
    bool is_running(RequestId id) const;

    control::EngineClient& engine_;
    const DispatcherOptions options_;
    ReplicaChoice replica_choice_;
    std::atomic<uint64_t> num_seeds_{0};

    mutable std::mutex mutex_;
    std::condition_variable idle_;
    std::unordered_map<RequestId, Running> running_;
    RequestId next_id_ = 1;
    bool refusing_ = false;
};

}  // namespace aerie::frontend
