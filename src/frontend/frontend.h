// Frontend: the HTTP API of an engine. Stateless but for the requests that run.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/call.h"
#include "base/json.h"
#include "base/result.h"
#include "control/engine_client.h"
#include "frontend/prompt_encoder.h"
#include "frontend/replica_choice.h"
#include "http/server.h"
#include "metrics/registry.h"
#include "tokenizer/tokenizer.h"

namespace aerie::frontend {

struct FrontendOptions {
    http::ServerOptions http;
    std::string served_model_name;
    std::string api_key, admin_api_key;  // empty: none asked for
    int context_length = 0;              // tokens, prompt and output
    api::CallDefaults defaults;
    std::optional<int> max_running_requests, max_queued_requests;  // both set: the limit, then 503
    std::optional<int64_t> random_seed;
    ReplicaChoiceOptions replica_choice = {};
    int stream_interval = 1;  // tokens of a choice between two chunks of a stream
    int num_workers = 2;      // threads for JSON, templates and tokenising
    double metrics_limit_s = 2;           // that /metrics waits for a host
    double health_generate_limit_s = 20;  // that /health_generate waits for its token
    bool enable_metrics = true;
    std::vector<int32_t> eos_ids;  // of the model: what ends an answer that obeys a grammar
    bool drafts = false;  // the model drafts tokens: native replies tell how many were taken

    Json model_info = Json::object();     // members of /model_info
    Json server_info = Json::object();    // flat members of /server_info: every setting
    Json ae_separation = Json::object();  // groups and placement; the hosts' states are added
};

// All must outlive the frontend.
struct FrontendParts {
    const Tokenizer& tokenizer;
    control::EngineClient& engine;
    metrics::Registry& registry;
    RenderChat render_chat;
};

class Frontend {
  public:
    // Serves from now on; what needs the engine gets 503 until its hosts are live.
    static Result<std::unique_ptr<Frontend>> start(FrontendOptions options, FrontendParts parts);
    ~Frontend();  // stop(0)
    Frontend(const Frontend&) = delete;
    Frontend& operator=(const Frontend&) = delete;

    int port() const;
    // New requests get 503 and /health says so; running ones finish, at most limit_s seconds; then
    // what still runs is aborted, and the port closes when that is told, a second later at the latest.
    // Blocks. Idempotent.
    void stop(double limit_s);

  private:
    struct Impl;
    explicit Frontend(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace aerie::frontend
