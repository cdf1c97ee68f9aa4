#include <sys/stat.h>

#include <charconv>

#include "config/check_context.h"

namespace aerie {
namespace {

constexpr const char* kModel = "model does not fit the parallel sizes";

void check_heads(CheckContext& c, const char* key, int tp) {
    const int heads = c.model->num_attention_heads;
    if (heads % tp != 0) {
        std::string fit;
        for (int i = 1; i <= heads; ++i) {
            if (heads % i == 0) fit += fmt::format("{}{}", fit.empty() ? "" : ", ", i);
        }
        c.fail(
            "{}: {} = {}, but the model's {} attention heads are not divisible by it; expected "
            "one of {}",
            kModel, key, tp, heads, fit);
    }
    if (c.model->vocab_size < tp) {
        c.fail("{}: {} = {}, more than the model's vocab_size {}; expected at most that", kModel,
               key, tp, c.model->vocab_size);
    }
}

void check_context(CheckContext& c) {
    const int longest = c.model->max_position_embeddings;
    const auto check = [&](const char* section, const char* name, std::optional<int> value) {
        if (value && *value > longest) {
            c.fail("context too long: {}; expected at most the model's max_position_embeddings {}",
                   c.say(section, name), longest);
        }
    };
    check("model", "max_seq_len", c.config.model.max_seq_len);
    check("", "context_length", c.config.settings.context_length);
}

void check_port_range(CheckContext& c) {
    const std::string& range = c.config.cluster.port_range;
    if (!range.empty() && !parse_port_range(range)) {
        c.fail("bad value: {}; expected two ports such as \"31000-31099\"",
               c.say("cluster", "port_range"));
    }
}

void check_identity(CheckContext& c) {
    const Config& config = c.config;
    if (config.node_rank && *config.node_rank >= config.cluster.nodes) {
        c.fail("bad value: --node-rank (or NODE_RANK) = {}; expected 0 to {}, since {}",
               *config.node_rank, config.cluster.nodes - 1, c.say("cluster", "nodes"));
    }
    if (config.node_rank && config.cluster.nodes > 1 && config.rendezvous.empty() &&
        config.cluster.hosts.empty()) {
        c.fail(
            "bad value: --node-rank (or NODE_RANK) = {} without an address to meet at; expected "
            "--rendezvous HOST:PORT (or MASTER_ADDR and MASTER_PORT), or [cluster] hosts",
            *config.node_rank);
    }
    if (!config.rendezvous.empty()) {
        const size_t colon = config.rendezvous.rfind(':');
        int port = 0;
        const char* end = config.rendezvous.data() + config.rendezvous.size();
        const char* begin = colon == std::string::npos ? end : config.rendezvous.data() + colon + 1;
        const auto read = std::from_chars(begin, end, port);
        if (begin == end || colon == 0 || read.ec != std::errc() || read.ptr != end || port < 1 ||
            port > 65535) {
            c.fail("bad value: --rendezvous (or MASTER_ADDR:MASTER_PORT) = {}; expected HOST:PORT",
                   config.rendezvous);
        }
    }
}

// Two ways to write the path of one folder agree.
bool same_folder(const std::string& left, const std::string& right) {
    struct stat a, b;
    return left == right || (stat(left.c_str(), &a) == 0 && stat(right.c_str(), &b) == 0 &&
                             a.st_dev == b.st_dev && a.st_ino == b.st_ino);
}

void check_model_path(CheckContext& c) {
    const std::string &left = c.config.settings.model_path, &right = c.config.model.path;
    if (left.empty() && right.empty()) {
        c.fail("bad value: {} and {}; expected a folder with config.json (or --model-path)",
               c.say("", "model_path"), c.say("model", "path"));
        return;
    }
    const char* section = right.empty() ? "" : "model";
    const char* name = right.empty() ? "model_path" : "path";
    const std::string& path = right.empty() ? left : right;
    if (!same_folder(left, right)) {
        c.fail("model mismatch: {} but {}; expected the same folder in both",
               c.say("", "model_path"), c.say("model", "path"));
    }
    if (path.find("://") != path.npos) {
        c.fail("bad value: {} is a URL; expected a folder: mount or copy the model first",
               c.say(section, name));
    }
}

}  // namespace

std::optional<std::pair<int, int>> parse_port_range(const std::string& text) {
    int first = 0, last = 0;
    const char* end = text.data() + text.size();
    const auto a = std::from_chars(text.data(), end, first);
    if (a.ec != std::errc() || a.ptr == end || *a.ptr != '-') return std::nullopt;
    const auto b = std::from_chars(a.ptr + 1, end, last);
    if (b.ec != std::errc() || b.ptr != end || first < 1 || last > 65535 || first > last) {
        return std::nullopt;
    }
    return std::pair(first, last);
}

void check_model_fits(CheckContext& c) {
    if (c.model == nullptr) return;
    check_heads(c, "tp_size and attention_tp", c.parallel().attention_tp);
    if (c.config.separated() && c.decode_tp() != c.parallel().attention_tp) {
        check_heads(c, "decode_tp", c.decode_tp());
    }
    if (c.parallel().expert_ep > c.model->n_routed_experts) {
        c.fail(
            "{}: ep_size and expert_ep = {}, more than the model's {} routed experts; expected "
            "at most that",
            kModel, c.parallel().expert_ep, c.model->n_routed_experts);
    }
    check_context(c);
    if (c.config.settings.enable_mtp && c.model->num_nextn_predict_layers == 0) {
        c.fail(
            "model has no MTP layer: {}, but num_nextn_predict_layers in {}/config.json is 0; "
            "expected enable_mtp = false or another model",
            c.say("", "enable_mtp"), c.config.model.path);
    }
}

void check_values(CheckContext& c) {
    const Settings& s = c.config.settings;
    check_model_path(c);
    if (s.chunked_prefill_size != -1 &&
        (s.chunked_prefill_size < s.page_size || s.chunked_prefill_size % s.page_size != 0)) {
        const int below = s.chunked_prefill_size / s.page_size * s.page_size;
        c.fail("bad value: {}; expected -1 or a multiple of page_size = {}, such as {} or {}",
               c.say("", "chunked_prefill_size"), s.page_size, std::max(below, s.page_size),
               std::max(below, 0) + s.page_size * (below < s.page_size ? 2 : 1));
    }
    if (s.max_total_tokens && *s.max_total_tokens < 2 * int64_t{s.page_size}) {
        c.fail("bad value: {}; expected at least page_size × 2 = {}", c.say("", "max_total_tokens"),
               2 * s.page_size);
    }
    if (s.ssl_certfile.empty() != s.ssl_keyfile.empty()) {
        c.fail("bad value: {} and {}; expected both or none", c.say("", "ssl_certfile"),
               c.say("", "ssl_keyfile"));
    }
    for (const auto& [key, value] : {std::pair("ssl_keyfile_password", &s.ssl_keyfile_password),
                                     std::pair("ssl_ca_certs", &s.ssl_ca_certs)}) {
        if (!value->empty() && s.ssl_certfile.empty()) {
            c.fail("bad value: {} without ssl_certfile; expected both, or neither for plain HTTP",
                   c.say("", key));
        }
    }
    // The URL stands in the header: a limit beyond that one would not hold.
    if (s.http.max_url_kb > s.http.max_header_kb) {
        c.fail("bad value: {}, more than {}, which the URL is part of; expected at most that",
               c.say("", "http_max_url_kb"), c.say("", "http_max_header_kb"));
    }
    if (s.watchdog_timeout < c.config.ae_separation.exchange_timeout_s) {
        c.fail("bad value: {}, less than {}, which a step may wait for its experts; expected at "
               "least that",
               c.say("", "watchdog_timeout"), c.say("ae_separation", "exchange_timeout_s"));
    }
    check_port_range(c);
    check_identity(c);
}

}  // namespace aerie
