#include "app/http_api.h"

#include <algorithm>

#include "frontend/config_options.h"

namespace aerie {

Result<std::unique_ptr<HttpApi>> start_http_api(const LoadedConfig& loaded,
                                                control::EngineClient& engine,
                                                metrics::Registry& registry) {
    auto options = frontend::frontend_options(loaded, AERIE_VERSION);
    const Settings& settings = loaded.config.settings;
    auto tokenizer = Tokenizer::load(settings.tokenizer_path);
    if (!tokenizer) return tokenizer.error();
    auto source = find_chat_template(settings.tokenizer_path, settings.chat_template);
    if (!source) return source.error();
    if (Status chosen = frontend::choose_formats(settings, *source, options); !chosen) {
        return Error{chosen.message()};
    }
    auto chat_template = ChatTemplate::compile(std::move(source).value());
    if (!chat_template) return chat_template.error();
    auto api = std::make_unique<HttpApi>(HttpApi{
        std::move(tokenizer).value(), std::move(chat_template).value(), nullptr});
    options.defaults.vocab_size = std::min(options.defaults.vocab_size, api->tokenizer->vocab_size());
    auto started = frontend::Frontend::start(
        std::move(options),
        {.tokenizer = *api->tokenizer,
         .engine = engine,
         .registry = registry,
         .render_chat = [&chat = api->chat_template](const Json& v) { return chat.render(v); }});
    if (!started) return started.error();
    api->frontend = std::move(started).value();
    return api;
}

}  // namespace aerie
