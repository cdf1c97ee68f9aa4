// FakeEngine: an EngineClient for tests that answers with scripted tokens, on a thread of its own.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "control/engine_client.h"

namespace aerie::frontend {

// What a request is answered with. step: tokens in one TokenOut.
struct Script {
    std::vector<int32_t> tokens;
    FinishReason finish = FinishReason::kLength;
    int32_t matched_token = -1;
    std::string error = {};
    ErrorKind error_kind = ErrorKind::kUnavailable;
    int step = 1;
    int cached_tokens = 0;
    bool never_ends = false;         // after its tokens nothing comes
    double seconds_per_step = 0;
    std::string refusal = {};        // add() fails with it
    std::vector<uint64_t> hashes = {};
    std::vector<TokenLogprobs> logprobs = {};  // [tokens]
};

class FakeEngine final : public control::EngineClient {
  public:
    using MakeScript = std::function<Script(const Request&)>;
    explicit FakeEngine(MakeScript make_script);
    ~FakeEngine() override;

    Status add(const Request& request) override;
    void abort(RequestId id) override;
    void set_sink(std::function<void(std::vector<TokenOut>)> sink) override;
    control::EngineState state() const override;
    std::string collect_metrics(double limit_s) override;
    Status flush_cache(double limit_s) override;
    int num_flushes() const;

    void set_state(control::EngineState state);
    void end_all();  // what never ends ends now
    std::vector<Request> requests() const;  // in the order added
    bool wait_aborted(RequestId id, double limit_s = 5);
    bool wait_requests(size_t count, double limit_s = 5);
    static control::EngineState healthy_state(int num_prefill = 1, int num_decode = 1);

  private:
    struct Running {
        Script script;
        size_t next = 0;
        int num_steps = 0;
        TimePoint due;
    };
    void run();
    std::vector<TokenOut> step();  // mutex_ held

    const MakeScript make_script_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::function<void(std::vector<TokenOut>)> sink_;
    std::map<RequestId, Running> running_;
    std::vector<Request> requests_;
    std::set<RequestId> aborted_;
    control::EngineState state_ = healthy_state();
    bool stopping_ = false;
    int num_flushes_ = 0;
    std::thread thread_;
};

}  // namespace aerie::frontend
