#include "frontend/config_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "config/keys.h"
#include "config/nearest.h"

namespace aerie::frontend {
namespace {

Json strings(const std::vector<std::string>& items) {
    Json list = Json::array();
    for (const std::string& item : items) list.push_back(item);
    return list;
}

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

api::CallDefaults call_defaults(const ModelConfig& model) {
    const GenerationDefaults& given = model.generation;
    api::CallDefaults defaults;
    defaults.temperature = given.temperature.value_or(defaults.temperature);
    defaults.top_p = given.top_p.value_or(defaults.top_p);
    // In generation_config.json 0 means all, as in transformers.
    if (given.top_k && *given.top_k > 0) defaults.top_k = *given.top_k;
    defaults.min_p = given.min_p.value_or(defaults.min_p);
    defaults.repetition_penalty =
        given.repetition_penalty.value_or(defaults.repetition_penalty);
    defaults.vocab_size = model.vocab_size;
    return defaults;
}

Json model_info(const LoadedConfig& loaded) {
    const Settings& settings = loaded.config.settings;
    return Json::object()
        .set("model_path", settings.model_path)
        .set("served_model_name", settings.served_model_name)
        .set("tokenizer_path", settings.tokenizer_path)
        .set("is_generation", true)
        .set("architectures", strings(loaded.model.architectures))
        .set("model_type", loaded.model.model_type);
}

// Of each replica: how many KV tokens fit, and why.
Json kv_cache(const LoadedConfig& loaded) {
    Json list = Json::array();
    for (const AttentionReplica& replica : loaded.placement.replicas) {
        const KvSizing& sizing = loaded.memory.replicas[replica.replica];
        list.push_back(Json::object()
                           .set("dp_rank", replica.dp_rank)
                           .set("engine_type", name_of(replica.role))
                           .set("max_total_num_tokens", sizing.max_total_num_tokens)
                           .set("num_blocks", sizing.num_blocks)
                           .set("reason", sizing.reason));
    }
    return list;
}

Json server_info(const LoadedConfig& loaded, const std::string& version) {
    Json info = Json::object();
    for (const ConfigKey& key : config_keys()) {
        if (!key.in_settings()) continue;
        Json value = key.get(loaded.config);
        info.set(key.name, key.secret && !value.is_null() ? Json("***") : std::move(value));
    }
    const int64_t max_total = loaded.memory.max_total_num_tokens;
    const int64_t context = loaded.config.settings.context_length.value_or(0);
    info.set("host", loaded.config.server.host)
        .set("port", loaded.config.server.port)
        .set("max_total_num_tokens", max_total)
        .set("max_req_input_len", (max_total > 0 ? std::min(context, max_total) : context) - 1)
        .set("kv_cache", kv_cache(loaded))
        .set("version", version);
    return info;
}

Json placement_json(const Placement& placement) {
    Json nodes = Json::array();
    for (const NodePlace& node : placement.nodes) {
        Json ranks = Json::array();
        const auto add = [&](const RankPlace& rank) {
            ranks.push_back(
                Json::object()
                    .set("role", name_of(rank.role))
                    .set("rank", rank.rank)
                    .set("card", rank.card)
                    .set(rank.role == Role::kExpert ? "expert_copy" : "replica", rank.group));
        };
        for (const int rank : node.attention_ranks) add(placement.attention[rank]);
        for (const int rank : node.expert_ranks) add(placement.experts[rank]);
        nodes.push_back(Json::object().set("node", node.name).set("ranks", std::move(ranks)));
    }
    return nodes;
}

// The setting, or what the memory of the decode replicas allows together.
std::optional<int> max_running_requests(const LoadedConfig& loaded) {
    const auto& given = loaded.config.settings.max_running_requests;
    if (given || loaded.memory.replicas.empty()) return given;
    int sum = 0;
    for (const int replica : loaded.placement.decode_replicas()) {
        sum += loaded.memory.replicas[replica].max_running_requests;
    }
    return sum;
}

// Pages as many as the largest replica's pool has blocks, within reason.
ReplicaChoiceOptions replica_choice(const LoadedConfig& loaded) {
    constexpr int64_t kPagesMax = int64_t{1} << 18;  // 26 MB a replica
    ReplicaChoiceOptions options{.page_size = loaded.config.settings.page_size};
    if (loaded.config.settings.disable_radix_cache) return options;
    for (const KvSizing& replica : loaded.memory.replicas) {
        options.max_pages = std::max<int64_t>(options.max_pages, replica.num_blocks);
    }
    options.max_pages = std::min(options.max_pages, kPagesMax);
    return options;
}

void set_http_limits(const HttpLimits& limits, http::ServerOptions& options) {
    const auto bytes = [](double count, int shift) {
        return static_cast<size_t>(std::ldexp(count, shift));
    };
    options.max_connections = limits.max_connections;
    options.max_body_bytes = bytes(limits.max_body_mb, 20);
    options.max_header_bytes = bytes(limits.max_header_kb, 10);
    options.max_headers = limits.max_headers;
    options.max_url_bytes = bytes(limits.max_url_kb, 10);
    options.max_unsent_bytes = bytes(limits.stream_buffer_mb, 20);
    options.header_timeout_s = limits.header_timeout_s;
    options.body_timeout_s = limits.body_timeout_s;
    options.idle_timeout_s = limits.idle_timeout_s;
    options.write_timeout_s = limits.write_timeout_s;
}

Json ae_separation(const LoadedConfig& loaded) {
    const Config& config = loaded.config;
    const AeSeparation& separation = config.ae_separation;
    Json info = Json::object()
                    .set("enabled", config.separated())
                    .set("attention_group", Json::object()
                                                .set("tp", config.parallel.attention_tp)
                                                .set("cp", config.parallel.attention_cp)
                                                .set("nodes", strings(separation.prefill_nodes)))
                    .set("expert_group", Json::object()
                                             .set("ep", loaded.placement.expert_ep())
                                             .set("dp", loaded.placement.expert_dp())
                                             .set("nodes", strings(separation.decode_nodes)))
                    .set("kv_transfer", name_of(separation.kv_transfer))
                    .set("comm_backend", name_of(separation.comm_backend));
    info.set("placement", placement_json(loaded.placement));
    return info;
}

template <typename Format>
Status read_format(const char* key, const std::string& name,
                   std::optional<Format> (*find)(std::string_view),
                   const std::vector<std::string>& known, Format& format) {
    if (name.empty()) return {};
    const auto found = find(name);
    if (!found) {
        return error("{} is {}; expected one of {}{}", key, name, fmt::join(known, ", "),
                     did_you_mean(name, known));
    }
    format = *found;
    return {};
}

}  // namespace

Status choose_formats(const Settings& settings, const std::string& template_source,
                      FrontendOptions& options) {
    parse::Formats& formats = options.defaults.formats;
    formats = parse::formats_of_template(template_source);
    RETURN_IF_ERROR(read_format("tool_call_parser", settings.tool_call_parser, parse::tool_format,
                                parse::tool_format_names(), formats.tools));
    RETURN_IF_ERROR(read_format("reasoning_parser", settings.reasoning_parser,
                                parse::reasoning_format, parse::reasoning_format_names(),
                                formats.reasoning));
    options.model_info.set("tool_call_parser", or_null(parse::name_of(formats.tools)))
        .set("reasoning_parser", or_null(parse::name_of(formats.reasoning)));
    return {};
}

FrontendOptions frontend_options(const LoadedConfig& loaded, const std::string& version) {
    const Settings& settings = loaded.config.settings;
    FrontendOptions options;
    options.http.host = loaded.config.server.host;
    options.http.port = loaded.config.server.port;
    options.http.tls = {.certfile = settings.ssl_certfile,
                        .keyfile = settings.ssl_keyfile,
                        .keyfile_password = settings.ssl_keyfile_password,
                        .ca_certs = settings.ssl_ca_certs};
    set_http_limits(settings.http, options.http);
    options.served_model_name = settings.served_model_name;
    options.api_key = settings.api_key;
    options.admin_api_key = settings.admin_api_key;
    options.context_length = settings.context_length.value_or(loaded.model.max_position_embeddings);
    options.defaults = call_defaults(loaded.model);
    options.defaults.limits = settings.requests;
    options.max_running_requests = max_running_requests(loaded);
    options.max_queued_requests = settings.max_queued_requests;
    options.random_seed = settings.random_seed;
    options.replica_choice = replica_choice(loaded);
    options.stream_interval = settings.stream_interval;
    options.enable_metrics = settings.enable_metrics;
    options.eos_ids.assign(loaded.model.eos_token_ids.begin(), loaded.model.eos_token_ids.end());
    options.drafts = settings.enable_mtp;
    options.model_info = model_info(loaded);
    options.server_info = server_info(loaded, version);
    options.ae_separation = ae_separation(loaded);
    return options;
}

}  // namespace aerie::frontend
