#include <fmt/chrono.h>

#include <cmath>
#include <utility>

#include "api/openai/fields.h"
#include "api/openai/reply.h"
#include "api/openai/request.h"
#include "frontend/handlers.h"
#include "frontend/scrape.h"

namespace aerie::frontend {

using api::ApiError;

Json Handlers::model_json() const {
    return Json::object()
        .set("id", options_.served_model_name)
        .set("object", "model")
        .set("created", started_)
        .set("owned_by", "aerie")
        .set("root", options_.served_model_name)
        .set("parent", Json())
        .set("max_model_len", options_.context_length)
        // As Anthropic's clients expect a model.
        .set("type", "model")
        .set("display_name", options_.served_model_name)
        .set("created_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(started_)));
}

void Handlers::models(HttpCall& call) {
    Json list = Json::array();
    list.push_back(model_json());
    send_json(call, Json::object()
                        .set("object", "list")
                        .set("data", std::move(list))
                        .set("has_more", false)
                        .set("first_id", options_.served_model_name)
                        .set("last_id", options_.served_model_name));
}

void Handlers::model(HttpCall& call) {
    if (call.parameter == options_.served_model_name) return send_json(call, model_json());
    send_error(call, {.status = 404,
                      .message = fmt::format("The model \"{}\" does not exist; this server has "
                                             "\"{}\"",
                                             call.parameter, options_.served_model_name),
                      .param = "model",
                      .code = "model_not_found"});
}

void Handlers::model_info(HttpCall& call) { send_json(call, options_.model_info); }

// One replica's, from the metrics of its leader; what is not counted is null.
Json Handlers::load_json(const Scrape& scrape, const Scrape::Labels& replica) const {
    const auto value = [&](const char* name) {
        const auto found = scrape.value(fmt::format("sglang:{}", name), replica);
        if (!found) return Json();
        const double number = *found;
        const bool whole = std::floor(number) == number && std::abs(number) < 9e15;
        return whole ? Json(static_cast<int64_t>(number)) : Json(number);
    };
    const auto label = [&](const char* name) {
        const auto found = replica.find(name);
        return found == replica.end() ? std::string() : found->second;
    };
    return Json::object()
        .set("dp_rank", static_cast<int64_t>(std::strtol(label("dp_rank").c_str(), nullptr, 10)))
        .set("engine_type", label("engine_type"))
        .set("num_running_reqs", value("num_running_reqs"))
        .set("num_waiting_reqs", value("num_queue_reqs"))
        .set("num_used_tokens", value("num_used_tokens"))
        .set("max_total_num_tokens", value("max_total_num_tokens"))
        .set("token_usage", value("token_usage"))
        .set("gen_throughput", value("gen_throughput"))
        .set("cache_hit_rate", value("cache_hit_rate"))
        .set("spec_accept_length", value("spec_accept_length"));
}

void Handlers::loads(HttpCall& call) {
    const Scrape scrape(parts_.engine.collect_metrics(options_.metrics_limit_s));
    Json list = Json::array();
    for (const Scrape::Labels& replica : scrape.series("sglang:num_running_reqs")) {
        list.push_back(load_json(scrape, replica));
    }
    send_json(call, Json::object().set("loads", std::move(list)));
}

void Handlers::server_info(HttpCall& call) {
    const Scrape scrape(parts_.engine.collect_metrics(options_.metrics_limit_s));
    Json states = Json::array();
    for (const Scrape::Labels& replica : scrape.series("sglang:num_running_reqs")) {
        Json load = load_json(scrape, replica);
        Json memory = Json::object()
                          .set("token_capacity", load["max_total_num_tokens"])
                          .set("used_tokens", load["num_used_tokens"]);
        states.push_back(Json::object()
                             .set("dp_rank", load["dp_rank"])
                             .set("engine_type", load["engine_type"])
                             .set("last_gen_throughput", load["gen_throughput"])
                             .set("memory_usage", std::move(memory))
                             .set("avg_spec_accept_length", load["spec_accept_length"]));
    }
    const control::EngineState state = parts_.engine.state();
    const auto replicas_json = [](const std::vector<control::ReplicaState>& replicas) {
        Json list = Json::array();
        for (const auto& replica : replicas) {
            list.push_back(Json::object()
                               .set("dp_rank", replica.replica)
                               .set("node", fmt::format("node-{}", replica.node))
                               .set("live", replica.live));
        }
        return list;
    };
    Json complete = Json::array();
    for (const bool is_complete : state.expert_copy_complete) complete.push_back(is_complete);
    Json separation = options_.ae_separation;
    separation.set("prefill_replicas", replicas_json(state.prefill))
        .set("decode_replicas", replicas_json(state.decode))
        .set("expert_copies_complete", std::move(complete));
    Json info = options_.server_info;
    info.set("internal_states", std::move(states)).set("ae_separation", std::move(separation));
    send_json(call, info);
}

void Handlers::tokenize(HttpCall& call) {
    Json body;
    if (!read_body(call, body)) return;
    const Json& add = body["add_special_tokens"];
    if (!add.is_null() && !add.is_bool()) {
        return send_error(
            call, {.message = "add_special_tokens must be true or false, " + openai::got(add),
                   .param = "add_special_tokens"});
    }
    api::Prompt prompt;
    const Json& messages = body["messages"];
    if (!messages.is_null() && !body["prompt"].is_null()) {
        return send_error(call,
                          {.message = "prompt and messages are given: only one may be",
                           .param = "prompt"});
    }
    if (!messages.is_null()) {
        api::ChatPrompt chat;
        if (auto error = openai::read_messages(messages, chat.messages)) {
            return send_error(call, *error);
        }
        prompt = std::move(chat);
    } else if (body["prompt"].is_string()) {
        prompt = body["prompt"].as_string();
    } else {
        return send_error(call, {.message = "prompt must be a string, or messages a list, " +
                                            openai::got(body["prompt"]),
                                 .param = "prompt"});
    }
    std::vector<int32_t> ids;
    const bool add_special = add.is_null() || add.as_bool();
    if (auto error = encoder_.encode(prompt, ids, add_special)) return send_error(call, *error);
    Json tokens = Json::array();
    for (const int32_t id : ids) tokens.push_back(id);
    send_json(call, Json::object()
                        .set("tokens", std::move(tokens))
                        .set("count", static_cast<int64_t>(ids.size()))
                        .set("max_model_len", options_.context_length));
}

void Handlers::detokenize(HttpCall& call) {
    Json body;
    if (!read_body(call, body)) return;
    const Json& tokens = body["tokens"];
    const int vocab_size = options_.defaults.vocab_size;
    std::vector<int32_t> ids;
    bool valid = tokens.is_array();
    for (size_t i = 0; valid && i < tokens.as_array().size(); ++i) {
        const Json& id = tokens.as_array()[i];
        valid = id.is_int() && id.as_int() >= 0 && id.as_int() < vocab_size;
        if (valid) ids.push_back(static_cast<int32_t>(id.as_int()));
    }
    const Json& skip = body["skip_special_tokens"];
    if (!valid || (!skip.is_null() && !skip.is_bool())) {
        const char* field = valid ? "skip_special_tokens" : "tokens";
        const std::string expected =
            valid ? "true or false"
                  : fmt::format("a list of token ids from 0 to {}", vocab_size - 1);
        return send_error(call, {.message = fmt::format("{} must be {}, {}", field, expected,
                                                        openai::got(body[field])),
                                 .param = field});
    }
    const bool skip_special = skip.is_null() || skip.as_bool();
    send_json(call, Json::object().set("text", parts_.tokenizer.decode(ids, skip_special)));
}

void Handlers::abort_request(HttpCall& call) {
    Json body;
    if (!read_body(call, body)) return;
    const Json& rid = body["rid"];
    const Json& all = body["abort_all"];
    if ((!rid.is_null() && !rid.is_string()) || (!all.is_null() && !all.is_bool())) {
        return send_error(call, {.message = "rid must be a string and abort_all true or false, " +
                                            openai::got(body),
                                 .param = rid.is_null() || rid.is_string() ? "abort_all" : "rid"});
    }
    dispatcher_->abort(rid.is_string() ? rid.as_string() : "", all.is_bool() && all.as_bool());
    call.answer.send(200, {"text/plain; charset=utf-8", ""});
}

// As SGLang: only between requests.
void Handlers::flush_cache(HttpCall& call) {
    constexpr double kLimitSeconds = 5;
    const int num_in_flight = dispatcher_->num_in_flight();
    const Status flushed = num_in_flight > 0
                               ? error("{} requests are in flight", num_in_flight)
                               : parts_.engine.flush_cache(kLimitSeconds);
    if (!flushed) {
        return send_error(call, {.message = "The cache is not flushed: " + flushed.message()});
    }
    dispatcher_->forget_prefixes();
    call.answer.send(200, {"text/plain; charset=utf-8", "Cache flushed.\n"});
}

}  // namespace aerie::frontend
