// frontend_echo MODEL_DIR PORT [CERTFILE KEYFILE]: the HTTP API over a FakeEngine that repeats what the user said
// last, or the end of a prompt that is no chat; with the cache_salt "hold" it then says nothing
// more, for ever. So a client can have every answer it asks for: calls of tools, reasoning, stop
// strings. Ends with its standard input.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "frontend/frontend.h"
#include "frontend/testing/fake_engine.h"
#include "template/chat_template.h"

namespace aerie::frontend {
namespace {

Script repeat(const Request& request, const Tokenizer& tokenizer) {
    Script script;
    const auto& prompt = request.prompt;
    const auto last = [&](const char* token) {
        const auto found = std::find(prompt.rbegin(), prompt.rend(), *tokenizer.token_id(token));
        return static_cast<size_t>(prompt.rend() - found);  // the place after it; 0: there is none
    };
    const size_t begin = last("<｜User｜>");
    const size_t answer = last("<｜Assistant｜>");
    const size_t end = answer > begin ? answer - 1 : prompt.size();
    const auto limit = static_cast<size_t>(request.sampling.max_new_tokens);
    for (size_t i = begin; i < end && script.tokens.size() < limit; ++i) {
        if (tokenizer.is_special(prompt[i])) continue;
        script.tokens.push_back(prompt[i]);
        script.logprobs.push_back({-0.5f, {{prompt[i], -0.5f}}, {}});
    }
    if (script.tokens.size() < limit) {
        script.logprobs.push_back({-0.25f, {{*tokenizer.eos_id(), -0.25f}}, {}});
        script.tokens.push_back(*tokenizer.eos_id());
        script.finish = FinishReason::kStop;
        script.matched_token = *tokenizer.eos_id();
        script.never_ends = request.cache_salt == "hold";
    }
    script.seconds_per_step = 0.002;
    return script;
}

int run(const std::string& model_dir, int port, http::TlsOptions tls) {
    auto tokenizer = Tokenizer::load(model_dir);
    auto source = find_chat_template(model_dir);
    auto chat = source ? ChatTemplate::compile(*source) : Result<ChatTemplate>(source.error());
    if (!tokenizer || !chat) {
        std::fprintf(stderr, "%s\n", (!tokenizer ? tokenizer.message() : chat.message()).c_str());
        return 2;
    }
    FakeEngine engine([&](const Request& request) { return repeat(request, **tokenizer); });
    metrics::Registry registry;
    FrontendOptions options;
    options.http.port = port;
    options.http.tls = std::move(tls);
    options.served_model_name = "echo";
    options.context_length = 4096;
    options.defaults.formats = parse::formats_of_template(*source);
    options.eos_ids = {*(*tokenizer)->eos_id()};
    options.defaults.vocab_size = (*tokenizer)->vocab_size();
    auto frontend =
        Frontend::start(options, {.tokenizer = **tokenizer,
                                  .engine = engine,
                                  .registry = registry,
                                  .render_chat = [&](const Json& v) { return chat->render(v); }});
    if (!frontend) {
        std::fprintf(stderr, "%s\n", frontend.message().c_str());
        return 2;
    }
    std::printf("%s://127.0.0.1:%d\n", options.http.tls.certfile.empty() ? "http" : "https",
                (*frontend)->port());
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    (*frontend)->stop(5);
    return 0;
}

}  // namespace
}  // namespace aerie::frontend

int main(int argc, char** argv) {
    if (argc != 3 && argc != 5) {
        std::fprintf(stderr, "usage: frontend_echo MODEL_DIR PORT [CERTFILE KEYFILE]\n");
        return 2;
    }
    aerie::http::TlsOptions tls;
    if (argc == 5) tls = {.certfile = argv[3], .keyfile = argv[4]};
    return aerie::frontend::run(argv[1], std::atoi(argv[2]), std::move(tls));
}
