// Handlers: what each route of the table does.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>

#include "api/call.h"
#include "api/error.h"
#include "api/responses/store.h"
#include "base/json.h"
#include "frontend/answer.h"
#include "frontend/dispatcher.h"
#include "frontend/frontend.h"
#include "frontend/prompt_encoder.h"
#include "frontend/scrape.h"
#include "frontend/timeouts.h"
#include "grammar/compiler.h"

namespace aerie::frontend {

struct Route;

struct HttpCall {
    const Route* route;
    http::Request request;
    std::string parameter;  // what {id} in the route's path took
    Answer answer;
};

class Handlers {
  public:
    Handlers(const FrontendOptions& options, FrontendParts parts);

    void chat(HttpCall& call);
    void completion(HttpCall& call);
    void messages(HttpCall& call);
    void native_generate(HttpCall& call);
    void responses(HttpCall& call);
    void count_tokens(HttpCall& call);

    void root(HttpCall& call);
    void models(HttpCall& call);
    void model(HttpCall& call);
    void model_info(HttpCall& call);
    void server_info(HttpCall& call);
    void loads(HttpCall& call);
    void tokenize(HttpCall& call);
    void detokenize(HttpCall& call);
    void parse_function_call(HttpCall& call);
    void separate_reasoning(HttpCall& call);

    void health(HttpCall& call);
    void health_generate(HttpCall& call);
    void openapi(HttpCall& call);
    void docs(HttpCall& call);
    void ping(HttpCall& call);
    void metrics(HttpCall& call);
    void abort_request(HttpCall& call);
    void flush_cache(HttpCall& call);

    Dispatcher& dispatcher() { return *dispatcher_; }
    void set_stopping() { stopping_ = true; }

  private:
    // How an API's requests are read and its replies written.
    using Parse = api::MaybeError(const Json& body, const api::CallDefaults&, api::Call&);
    using MakeFormat = std::unique_ptr<api::ReplyFormat> (Handlers::*)(
        const api::Call& call, const std::vector<EncodedPrompt>& prompts) const;
    void generate(HttpCall& call, Parse* parse, MakeFormat make_format);
    // False, and the call is answered, where it is no JSON object or the server is stopping.
    bool begin(HttpCall& call, Json& body) const;
    std::unique_ptr<api::ReplyFormat> chat_format(const api::Call& call,
                                                  const std::vector<EncodedPrompt>& prompts) const;
    std::unique_ptr<api::ReplyFormat> completion_format(
        const api::Call& call, const std::vector<EncodedPrompt>& prompts) const;
    std::unique_ptr<api::ReplyFormat> native_format(
        const api::Call& call, const std::vector<EncodedPrompt>& prompts) const;
    std::unique_ptr<api::ReplyFormat> messages_format(
        const api::Call& call, const std::vector<EncodedPrompt>& prompts) const;
    api::MaybeError encode_all(api::Call& call, std::vector<EncodedPrompt>& prompts) const;
    // A call with a grammar is started once the grammar is known to be right, or else refused.
    void check_and_start(api::Call call, std::vector<EncodedPrompt> prompts,
                         std::unique_ptr<api::ReplyFormat> format, const Answer& answer);
    void start(api::Call call, std::vector<EncodedPrompt> prompts,
               std::unique_ptr<api::ReplyFormat> format, const Answer& answer,
               std::shared_ptr<Generation>* started = nullptr);
    // What of it the route reads. False, and the call is answered, where it is not a JSON object.
    bool read_body(HttpCall& call, Json& body) const;
    void send_error(HttpCall& call, const api::ApiError& error) const;
    void send_json(HttpCall& call, const Json& json) const;
    Json model_json() const;
    Json load_json(const Scrape& scrape, const Scrape::Labels& replica) const;
    std::string why_unhealthy() const;

    const FrontendOptions& options_;
    const std::unordered_map<const Route*, Json> body_schemas_;  // of each route that reads a body
    const FrontendParts parts_;
    const PromptEncoder encoder_;
    const metrics::FrontendMetrics metrics_;
    const int64_t started_;  // Unix time
    // Shared with the engine's sink, which may be called after this has gone.
    const std::shared_ptr<Dispatcher> dispatcher_;
    Timeouts timeouts_;
    std::atomic<bool> stopping_{false};
    // Shared with replies, which may be written after this has gone.
    const std::shared_ptr<responses::Conversations> conversations_;
    grammar::Compiler grammars_;  // its threads use the rest: it ends first
};

}  // namespace aerie::frontend
