#include "config/keys.h"

#include <algorithm>

#include "base/hash.h"
#include "config/key_row.h"

namespace aerie {
namespace {

// SGLang's and the files' other names for flags.
struct Alias {
    const char* alias;
    const char* flag;
};
constexpr Alias kAliases[] = {
    {"tp", "tp-size"},
    {"tensor-parallel-size", "tp-size"},
    {"attention-tp", "tp-size"},
    {"cp", "cp-size"},
    {"attention-cp", "cp-size"},
    {"context-parallel-size", "cp-size"},
    {"attention-context-parallel-size", "cp-size"},
    {"attn-cp-size", "cp-size"},
    {"dp", "dp-size"},
    {"data-parallel-size", "dp-size"},
    {"global-dp", "dp-size"},
    {"ep", "ep-size"},
    {"expert-parallel-size", "ep-size"},
    {"expert-ep", "ep-size"},
    {"model", "model-path"},
    {"nnodes", "nodes"},
    {"max-seq-len", "context-length"},
    {"hicache-size", "hicache-size-gb"},
    {"dist-init-addr", "rendezvous"},
    {"nccl-init-addr", "rendezvous"},
};

}  // namespace

std::span<const ConfigKey> config_keys() {
    static const std::vector<ConfigKey> keys = [] {
        std::vector<ConfigKey> all = settings_rows();
        for (ConfigKey& key : toml_rows()) all.push_back(std::move(key));
        return all;
    }();
    return keys;
}

const ConfigKey* find_key(std::string_view section, std::string_view name) {
    for (const ConfigKey& key : config_keys()) {
        if (section == key.section && name == key.name) return &key;
    }
    return nullptr;
}

std::string_view resolve_flag_alias(std::string_view flag) {
    for (const Alias& alias : kAliases) {
        if (flag == alias.alias) return alias.flag;
    }
    return flag;
}

std::vector<std::string> aliases_of(std::string_view flag) {
    std::vector<std::string> out;
    for (const Alias& alias : kAliases) {
        if (flag == alias.flag) out.emplace_back(alias.alias);
    }
    return out;
}

namespace {

std::string shown(const ConfigKey& key, const Config& config) {
    const Json value = key.get(config);
    if (value.is_null()) return key.unset[0] ? fmt::format("({})", key.unset) : "\"\"";
    return key.secret ? "***" : value.dump();
}

}  // namespace

std::string print_config(const Config& config) {
    std::string out;
    const char* section = nullptr;
    for (const ConfigKey& key : config_keys()) {
        if (section == nullptr || std::string_view(section) != key.section) {
            section = key.section;
            out +=
                key.in_settings() ? "settings.json\n" : fmt::format("config.toml [{}]\n", section);
        }
        out += fmt::format("  {} = {}{}{}\n", key.name, shown(key, config),
                           key.unit[0] ? "  # " : "", key.unit);
    }
    out += fmt::format("command line\n  device = {}\n  in_process = {}\n  share_cards = {}\n",
                       name_of(config.device), config.in_process, config.share_cards);
    out += fmt::format("  node_rank = {}\n  rendezvous = {}\n",
                       config.node_rank ? std::to_string(*config.node_rank) : "(none)",
                       config.rendezvous.empty() ? "(none)" : config.rendezvous);
    return out;
}

Json config_to_json(const Config& config) {
    Json out = Json::object();
    for (const ConfigKey& key : config_keys()) {
        const char* section = key.in_settings() ? "settings" : key.section;
        if (!out.find(section)) out.set(section, Json::object());
        const Json value = key.get(config);
        out.find(section)->set(key.name, key.secret && !value.is_null() ? Json("***") : value);
    }
    out.set("device", name_of(config.device));
    out.set("in_process", config.in_process);
    out.set("share_cards", config.share_cards);
    out.set("node_rank", config.node_rank ? Json(*config.node_rank) : Json());
    out.set("rendezvous", config.rendezvous);
    return out;
}

std::string describe_keys() {
    const Config defaults;
    std::string out;
    for (const ConfigKey& key : config_keys()) {
        const Json value = key.get(defaults);
        out +=
            fmt::format("{}: {}{}{}; {}; default {}", key.label(), key.meaning,
                        key.unit[0] ? ", in " : "", key.unit, key.expected(), shown(key, defaults));
        if (key.flag[0]) {
            out += fmt::format("; --{}", key.flag);
            for (const std::string& alias : aliases_of(key.flag)) out += ", --" + alias;
        }
        out += '\n';
    }
    return out;
}

uint64_t config_fingerprint(const Config& config) {
    static constexpr std::string_view kMayDiffer[] = {
        "log_level",     "api_key", "admin_api_key", "host", "port",
        "chat_template", "model_path", "path", "tokenizer_path"};
    // What concerns node 0's clients alone.
    static constexpr std::string_view kMayDifferFrom[] = {"ssl_", "http_"};
    std::string text;
    for (const ConfigKey& key : config_keys()) {
        const auto is_name = [&](std::string_view name) { return key.name == name; };
        const auto begins = [&](std::string_view prefix) {
            return std::string_view(key.name).starts_with(prefix);
        };
        if (std::ranges::any_of(kMayDiffer, is_name) ||
            std::ranges::any_of(kMayDifferFrom, begins)) {
            continue;
        }
        text += key.label() + "=" + key.get(config).dump() + "\n";
    }
    text += name_of(config.device);
    return hash_bytes(text.data(), text.size());
}

}  // namespace aerie
