#include "api/openai/reply.h"
#include "frontend/handlers.h"
#include "metrics/snapshot.h"

namespace aerie::frontend {
namespace {

const char* const kText = "text/plain; charset=utf-8";

// The answer to /health_generate: that there is one is all that it says.
class HealthReply final : public api::ReplyFormat {
  public:
    api::Body error(const api::ApiError& error) const override { return {kText, error.message}; }
    api::Body whole(const std::vector<api::Piece>&, const api::Usage&) const override {
        return {kText, ""};
    }
    std::string stream_piece(const api::Piece&, const api::Usage&) override { return {}; }
    std::string stream_end(const api::Usage&) override { return {}; }
    std::string stream_error(const api::ApiError&) override { return {}; }
};

}  // namespace

std::string Handlers::why_unhealthy() const {
    return stopping_ ? "the server is stopping" : parts_.engine.state().why_unhealthy();
}

void Handlers::health(HttpCall& call) {
    const std::string why = why_unhealthy();
    call.answer.send(why.empty() ? 200 : 503, {kText, why});
}

void Handlers::health_generate(HttpCall& http) {
    if (const std::string why = why_unhealthy(); !why.empty()) {
        http.answer.send(503, {kText, why});
        return;
    }
    api::Call call;
    call.sampling.temperature = 0;
    call.sampling.ignore_eos = true;
    EncodedPrompt prompt{.ids = {parts_.tokenizer.bos_id().value_or(0)}, .max_new_tokens = 1};
    std::vector<EncodedPrompt> prompts;
    prompts.push_back(std::move(prompt));
    std::shared_ptr<Generation> generation;
    start(std::move(call), std::move(prompts), std::make_unique<HealthReply>(), http.answer,
          &generation);
    const double limit_s = options_.health_generate_limit_s;
    timeouts_.add(after(limit_s), [weak = std::weak_ptr(generation),
                                   dispatcher = dispatcher_, limit_s] {
        auto late = weak.lock();
        if (!late) return;
        dispatcher->fail(late, {.status = 503,
                                .message = fmt::format("no token came within {} s", limit_s)});
    });
}

// What some clients ask first to see that a server is there.
void Handlers::root(HttpCall& call) { call.answer.send(200, {kText, "aerie\n"}); }

void Handlers::ping(HttpCall& call) { call.answer.send(200, {kText, ""}); }

void Handlers::metrics(HttpCall& call) {
    if (!options_.enable_metrics) {
        return send_error(call, {.status = 404,
                                 .message = "the setting enable_metrics is false"});
    }
    std::string text = parts_.engine.collect_metrics(options_.metrics_limit_s);
    const Scrape scrape(text);
    metrics::Snapshot own = parts_.registry.collect();
    // A family may stand in the text once: process_* is then that of the hosts.
    std::erase_if(own, [&](const metrics::Family& family) {
        return scrape.has_family(family.name);
    });
    call.answer.send(200, {"text/plain; version=0.0.4; charset=utf-8",
                           text + metrics::to_text(own)});
}

}  // namespace aerie::frontend
