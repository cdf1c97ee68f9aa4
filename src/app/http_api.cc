#include "app/http_api.h"

#include "config/keys.h"
#include "config/report.h"

namespace aerie {
namespace {

Json strings(const std::vector<std::string>& values) {
    Json list = Json::array();
    for (const std::string& value : values) list.push_back(value);
    return list;
}

Json model_info(const LoadedConfig& loaded) {
    const Settings& settings = loaded.config.settings;
    return Json::object()
        .set("model_path", settings.model_path)
        .set("tokenizer_path", settings.tokenizer_path)
        .set("served_model_name", settings.served_model_name)
        .set("is_generation", true)
        .set("architectures", strings(loaded.model.architectures))
        .set("model_type", loaded.model.model_type)
        .set("tool_call_parser", settings.tool_call_parser)
        .set("reasoning_parser", settings.reasoning_parser);
}

Json server_info(const LoadedConfig& loaded) {
    Json info = config_to_json(loaded.config)["settings"];
    return info.set("version", AERIE_VERSION)
        .set("max_total_num_tokens", loaded.memory.max_total_num_tokens)
        .set("max_req_input_len", *loaded.config.settings.context_length - 1);
}

frontend::FrontendOptions options_of(const LoadedConfig& loaded, int vocab_size) {
    const Settings& settings = loaded.config.settings;
    const GenerationDefaults& generation = loaded.model.generation;
    frontend::FrontendOptions options;
    options.http.host = loaded.config.server.host;
    options.http.port = loaded.config.server.port;
    options.served_model_name = settings.served_model_name;
    options.api_key = settings.api_key;
    options.admin_api_key = settings.admin_api_key;
    options.context_length = *settings.context_length;
    options.defaults = {.temperature = generation.temperature.value_or(1.0),
                        .top_p = generation.top_p.value_or(1.0),
                        .top_k = generation.top_k.value_or(-1),
                        .min_p = generation.min_p.value_or(0.0),
                        .vocab_size = vocab_size};
    options.max_running_requests = settings.max_running_requests;
    options.max_queued_requests = settings.max_queued_requests;
    options.random_seed = settings.random_seed;
    options.stream_interval = settings.stream_interval;
    options.enable_metrics = settings.enable_metrics;
    options.model_info = model_info(loaded);
    options.server_info = server_info(loaded);
    options.ae_separation = placement_to_json(loaded.placement);
    return options;
}

}  // namespace

Result<std::unique_ptr<HttpApi>> start_http_api(const LoadedConfig& loaded,
                                                control::EngineClient& engine,
                                                metrics::Registry& registry) {
    const Settings& settings = loaded.config.settings;
    auto tokenizer = Tokenizer::load(settings.tokenizer_path);
    if (!tokenizer) return tokenizer.error();
    auto source = find_chat_template(settings.tokenizer_path, settings.chat_template);
    if (!source) return source.error();
    auto chat_template = ChatTemplate::compile(std::move(source).value());
    if (!chat_template) return chat_template.error();
    auto api = std::make_unique<HttpApi>(HttpApi{
        std::move(tokenizer).value(), std::move(chat_template).value(), nullptr});
    auto started = frontend::Frontend::start(
        options_of(loaded, api->tokenizer->vocab_size()),
        {.tokenizer = *api->tokenizer,
         .engine = engine,
         .registry = registry,
         .render_chat = [&chat = api->chat_template](const Json& v) { return chat.render(v); }});
    if (!started) return started.error();
    api->frontend = std::move(started).value();
    return api;
}

}  // namespace aerie
