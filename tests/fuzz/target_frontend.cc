// A whole request: the first byte chooses among the paths that read a body, the rest is the body.
// Behind them is an engine that answers with the prompt's own tokens.
#include <vector>

#include "frontend/frontend.h"
#include "frontend/routes.h"
#include "frontend/testing/fake_engine.h"
#include "fuzz.h"
#include "http/testing/test_client.h"
#include "template/chat_template.h"

namespace aerie::fuzz {
namespace {

constexpr int kContext = 2048;  // tokens

frontend::Script repeat(const Request& request) {
    frontend::Script script;
    const auto most = static_cast<size_t>(std::min(request.sampling.max_new_tokens, 64));
    for (size_t i = 0; i < std::min(request.prompt.size(), most); ++i) {
        script.tokens.push_back(request.prompt[i]);
        script.logprobs.push_back({-0.5f, {{request.prompt[i], -0.5f}}, {}});
        script.logprobs.back().asked.assign(request.sampling.logprob_ids.size(), -1.0f);
    }
    return script;
}

// What lives as long as the process.
struct Server {
    std::unique_ptr<Tokenizer> tokenizer = *Tokenizer::load(AERIE_SOURCE_DIR "/models/demo");
    std::string source = *find_chat_template(AERIE_SOURCE_DIR "/models/demo");
    ChatTemplate chat = *ChatTemplate::compile(source);
    metrics::Registry registry;
    frontend::FakeEngine engine{repeat};
    std::unique_ptr<frontend::Frontend> frontend;
    std::vector<const frontend::Route*> routes;

    Server() {
        frontend::FrontendOptions options;
        options.served_model_name = "demo";
        options.context_length = kContext;
        options.defaults.formats = parse::formats_of_template(source);
        options.defaults.vocab_size = tokenizer->vocab_size();
        options.eos_ids = {*tokenizer->eos_id()};
        auto started = frontend::Frontend::start(
            std::move(options), {.tokenizer = *tokenizer,
                                 .engine = engine,
                                 .registry = registry,
                                 .render_chat = [this](const Json& v) { return chat.render(v); }});
        require(started.ok(), "the frontend starts");
        frontend = *std::move(started);
        for (const frontend::Route& route : frontend::routes()) {
            if (route.body != nullptr) routes.push_back(&route);
        }
    }
};

}  // namespace
}  // namespace aerie::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace aerie;
    if (size == 0) return 0;
    static auto* const server = new fuzz::Server;
    http::TestClient client(server->frontend->port());
    fuzz::require(client.connected(), "a client can connect");
    const frontend::Route& route = *server->routes[data[0] % server->routes.size()];
    client.send(http::TestClient::post_text(route.path, fuzz::text_of(data + 1, size - 1),
                                            "Connection: close\r\n"));
    fuzz::require(client.receive_end(15), "a request is answered");
    const std::string& got = client.received();
    fuzz::require(got.starts_with("HTTP/1.1 2") || got.starts_with("HTTP/1.1 4"),
                  "no request is an error of the server");
    return 0;
}
