#include "config/load.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "config/checks.h"
#include "config/config_files.h"
#include "config/environment.h"
#include "config/keys.h"
#include "config/nearest.h"
#include "config/sglang_keys.h"
#include "config/sources.h"

namespace aerie {
namespace {

std::vector<std::string> known_names(bool settings, std::string_view section) {
    std::vector<std::string> names;
    for (const ConfigKey& key : config_keys()) {
        if (key.in_settings() == settings && section == key.section) names.emplace_back(key.name);
    }
    return names;
}

std::vector<std::string> known_sections() {
    std::vector<std::string> names;
    for (const ConfigKey& key : config_keys()) {
        if (!key.in_settings() && (names.empty() || names.back() != key.section)) {
            names.emplace_back(key.section);
        }
    }
    return names;
}

// "; it belongs under [parallel] of config.toml", where another place has a key of this name.
std::string other_place(bool settings, std::string_view section, const std::string& name) {
    for (const ConfigKey& key : config_keys()) {
        if (name != key.name || (key.in_settings() == settings && section == key.section)) continue;
        return key.in_settings()
                   ? "; it belongs in settings.json"
                   : fmt::format("; it belongs under [{}] in config.toml", key.section);
    }
    return "";
}

class Loader {
  public:
    Loader(const CommandLine& command_line, LoadedConfig& out)
        : command_line_(command_line), out_(out) {}

    void read_settings() {
        if (command_line_.config_path.empty()) return;
        sources.has_settings = true;
        sources.settings_file = command_line_.config_path;
        auto text = read_file(command_line_.config_path);
        if (!text) return give_up(text.message());
        const GivenFile file = parse_json_settings(command_line_.config_path, *text, errors());
        readable &= file.readable;
        for (const GivenValue& given : file.values) apply_setting(given);
    }

    void read_toml() {
        if (command_line_.ae_config_path.empty()) return;
        sources.has_toml = true;
        sources.toml_file = command_line_.ae_config_path;
        auto text = read_file(command_line_.ae_config_path);
        if (!text) return give_up(text.message());
        const GivenFile file = parse_toml(command_line_.ae_config_path, *text, errors());
        readable &= file.readable;
        for (const GivenValue& given : file.values) apply_toml(given);
    }

    void apply_command_line() {
        for (const auto& [flag, text] : command_line_.overrides) {
            for (const ConfigKey& key : config_keys()) {
                if (flag == key.flag) apply_override(key, flag, text);
            }
        }
        Config& config = out_.config;
        config.device = command_line_.device.value_or(DeviceChoice::kAuto);
        config.in_process = command_line_.in_process;
        config.share_cards = command_line_.share_cards;
        const NodeIdentity identity = identity_from_environment();
        config.node_rank = command_line_.node_rank ? command_line_.node_rank : identity.node_rank;
        config.rendezvous =
            command_line_.rendezvous.empty() ? identity.rendezvous : command_line_.rendezvous;
    }

    // Without config.toml: nothing is separated, one node of tp × cp × dp cards.
    void fill_without_toml() {
        if (sources.has_toml) return;
        Config& config = out_.config;
        const Settings& s = config.settings;
        config.parallel.attention_tp = s.tp_size;
        config.parallel.attention_cp = s.cp_size;
        config.parallel.expert_ep = s.ep_size;
        config.parallel.global_dp = s.dp_size;
        if (!sources.given("cluster", "gpus_per_node")) {
            const int64_t cards = int64_t{s.tp_size} * s.cp_size * s.dp_size;
            config.cluster.gpus_per_node = static_cast<int>(std::min<int64_t>(cards, 1 << 20));
        }
    }

    // The URL stands in the header: nobody who makes that smaller must say it twice.
    void fill_url_limit() {
        HttpLimits& limits = out_.config.settings.http;
        if (sources.given("", "http_max_url_kb")) return;
        limits.max_url_kb = std::min(limits.max_url_kb, limits.max_header_kb);
    }

    Sources sources;
    bool readable = true;  // both files could be read to the end

  private:
    void give_up(std::string message) {
        readable = false;
        fail(std::move(message));
    }
    std::vector<std::string>& errors() { return out_.diagnostics.errors; }
    void fail(std::string message) { errors().push_back(std::move(message)); }

    void apply(const ConfigKey& key, const Json& value, const std::string& place) {
        if (value.is_string()) {
            const char* used = replacement_of_sglang_value(key.name, value.as_string());
            if (used != nullptr) {
                out_.diagnostics.warnings.push_back(
                    fmt::format("{}: {}: {} is a value of SGLang; {} is used", place, key.label(),
                                value.as_string(), used));
                return apply(key, used, place);
            }
        }
        if (auto status = key.set(key, out_.config, value); !status) {
            fail(fmt::format("{}: {}: {}", place, key.label(), status.message()));
            sources.set_bad(key);
            return;
        }
        sources.set(key, place);
    }

    static std::string place(const std::string& file, int line) {
        return line > 0 ? fmt::format("{} line {}", file, line) : file;
    }

    void apply_setting(const GivenValue& given) {
        const std::string at = place(sources.settings_file, given.line);
        if (const ConfigKey* key = find_key("", given.name)) {
            if (!given.value.is_null()) apply(*key, given.value, at);  // null: the default
            return;
        }
        const std::string other = other_place(true, "", given.name);
        if (other.empty() && is_sglang_key(given.name)) {
            out_.diagnostics.warnings.push_back(fmt::format(
                "{}: {} is a key of SGLang that has no meaning here; ignored", at, given.name));
            return;
        }
        const std::string hint =
            other.empty() ? did_you_mean(given.name, known_names(true, "")) : other;
        fail(fmt::format("{}: unknown key {} = {}{}", at, given.name, given.value.dump(), hint));
    }

    void apply_toml(const GivenValue& given) {
        const std::string at = place(sources.toml_file, given.line);
        const auto sections = known_sections();
        const bool known_section =
            std::find(sections.begin(), sections.end(), given.section) != sections.end();
        if (given.name.empty()) {
            if (!known_section) {
                fail(fmt::format("{}: unknown table [{}]{}; expected [{}]", at, given.section,
                                 did_you_mean(given.section, sections),
                                 fmt::join(sections, "], [")));
            }
            return;
        }
        if (!given.section.empty() && !known_section) return;  // said with the table
        const ConfigKey* key = find_key(given.section, given.name);
        if (key && !given.section.empty()) return apply(*key, given.value, at);
        const std::string other = other_place(false, given.section, given.name);
        const std::string label =
            given.section.empty() ? given.name : fmt::format("[{}] {}", given.section, given.name);
        fail(fmt::format(
            "{}: unknown key {} = {}{}", at, label, given.value.dump(),
            other.empty() ? did_you_mean(given.name, known_names(false, given.section)) : other));
    }

    void apply_override(const ConfigKey& key, const std::string& flag, const std::string& text) {
        apply(key, override_value(key, text), "--" + flag);
    }

    // The text of a flag as the JSON that the key's type wants; text that does not fit stays text,
    // and is refused with the key's own message.
    static Json override_value(const ConfigKey& key, const std::string& text) {
        const std::string type = key.type;
        if (type == "bool" || key.unset == std::string("auto")) {
            if (text == "true" || text == "1" || text == "yes") {
                if (type == "bool") return Json(true);
            }
            if (type == "bool" && (text == "false" || text == "0" || text == "no"))
                return Json(false);
        }
        if (type == "int" || type == "float") {
            auto number = Json::parse(text);
            return number && number->is_number() ? *number : Json(text);
        }
        if (type == "list") {
            Json list = Json::array();
            for (size_t at = 0; at <= text.size();) {
                const size_t comma = std::min(text.find(',', at), text.size());
                if (comma > at) list.push_back(text.substr(at, comma - at));
                at = comma + 1;
            }
            return list;
        }
        return Json(text);
    }

    const CommandLine& command_line_;
    LoadedConfig& out_;
};

// Defaults that follow from other keys. After it, pairs agree and optionals are set.
void derive(Config& config, const Sources& sources) {
    Settings& s = config.settings;
    if (s.model_path.empty()) s.model_path = config.model.path;
    if (config.model.path.empty()) config.model.path = s.model_path;
    if (s.tokenizer_path.empty()) s.tokenizer_path = s.model_path;
    if (s.served_model_name.empty()) {
        std::string path = s.model_path;
        while (path.size() > 1 && path.back() == '/') path.pop_back();
        s.served_model_name = path.substr(path.rfind('/') + 1);
    }
    AeSeparation& ae = config.ae_separation;
    if (!ae.decode_tp) ae.decode_tp = config.parallel.attention_tp;
    if (!ae.decode_cp) ae.decode_cp = config.parallel.attention_cp;
    auto& hosts = config.cluster.hosts;
    std::stable_sort(hosts.begin(), hosts.end(), [](const auto& a, const auto& b) {
        return a.first.size() != b.first.size() ? a.first.size() < b.first.size()
                                                : a.first < b.first;
    });  // node-2 before node-10
    if (!hosts.empty() && !sources.given("cluster", "nodes")) {
        config.cluster.nodes = static_cast<int>(hosts.size());
    }
}

// What only the model knows.
void derive_from_model(Config& config, const ModelConfig& model) {
    int length = config.model.max_seq_len.value_or(model.max_position_embeddings);
    if (config.settings.context_length) length = std::min(length, *config.settings.context_length);
    config.model.max_seq_len = config.model.max_seq_len.value_or(model.max_position_embeddings);
    config.settings.context_length = length;
}

}  // namespace

LoadedConfig load_config(const CommandLine& command_line, const Machine& machine) {
    LoadedConfig out;
    Loader loader(command_line, out);
    loader.read_settings();
    loader.read_toml();
    loader.apply_command_line();
    loader.fill_without_toml();
    loader.fill_url_limit();
    Diagnostics& diagnostics = out.diagnostics;
    Config& config = out.config;
    if (!loader.readable) return out;  // cross-checks of half a file would only mislead
    derive(config, loader.sources);

    const size_t before_model = diagnostics.errors.size();
    const bool has_path =
        !config.model.path.empty() && config.model.path.find("://") == std::string::npos;
    if (has_path) out.model = read_model_config(config.model.path, diagnostics.errors);
    const bool model_ok = has_path && diagnostics.errors.size() == before_model;
    check_config(config, loader.sources, model_ok ? &out.model : nullptr, diagnostics);
    check_backends(config, loader.sources, command_line, machine, diagnostics);
    if (!diagnostics.ok()) return out;

    derive_from_model(config, out.model);
    out.placement = place(config);
    const int64_t card = command_line.card_part > 0     ? command_line.card_part
                         : command_line.card_memory > 0 ? command_line.card_memory / hosts_on_a_gpu(config)
                                                        : card_memory(config, machine);
    out.memory = plan_memory(config, out.model, out.placement, card);
    check_memory(config, out.model, out.memory, diagnostics);
    return out;
}

int64_t card_memory(const Config& config, const Machine& machine) {
    const auto nodes = static_cast<int64_t>(std::max<size_t>(1, nodes_here(config).size()));
    if (config.device != DeviceChoice::kCuda)
        return machine.memory_free / (nodes * config.cluster.gpus_per_node);
    return machine.gpu_memory / hosts_on_a_gpu(config);
}

int64_t hosts_on_a_gpu(const Config& config) {
    const auto nodes = static_cast<int64_t>(nodes_here(config).size());
    return config.share_cards && config.device == DeviceChoice::kCuda ? std::max<int64_t>(1, nodes)
                                                                      : 1;
}

}  // namespace aerie
