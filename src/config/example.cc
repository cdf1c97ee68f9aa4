#include "config/example.h"

#include <filesystem>
#include <fstream>

#include "config/keys.h"

namespace aerie {
namespace {

// Set in the example; every other key of config.toml appears as a comment with its default.
Config example_config(const std::string& model_path) {
    Config config;
    config.settings.model_path = config.model.path = model_path;
    config.settings.enable_ae_separation = config.ae_separation.enabled = true;
    config.cluster.nodes = 3;
    config.ae_separation.prefill_nodes = {"node-0"};
    config.ae_separation.decode_attention_nodes = {"node-1"};
    config.ae_separation.decode_nodes = {"node-2"};
    return config;
}

constexpr const char* kSettingsShown[] = {"model_path",
                                          "tp_size",
                                          "cp_size",
                                          "ep_size",
                                          "dp_size",
                                          "enable_ae_separation",
                                          "page_size",
                                          "chunked_prefill_size",
                                          "mem_fraction_static"};

}  // namespace

std::string example_settings(const std::string& model_path) {
    const Config config = example_config(model_path);
    Json out = Json::object();
    for (const char* name : kSettingsShown) out.set(name, find_key("", name)->get(config));
    return out.dump(2) + "\n";
}

std::string example_toml(const std::string& model_path) {
    const Config config = example_config(model_path), defaults;
    std::string out, section;
    for (const ConfigKey& key : config_keys()) {
        if (key.in_settings()) continue;
        if (section != key.section) {
            section = key.section;
            out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
        }
        const Json value = key.get(config);
        out += fmt::format("# {}{}{}: {}\n", key.meaning, key.unit[0] ? ", in " : "", key.unit,
                           key.expected());
        const bool set = value != key.get(defaults) || section == "parallel";
        if (value.is_null()) {
            out += fmt::format("# {} is not set: {}\n", key.name, key.unset);
        } else {
            out += fmt::format("{}{} = {}\n", set ? "" : "# ", key.name, value.dump());
        }
    }
    return out;
}

Status write_example(const std::string& folder, const std::string& model_path) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) return error("{}: {}", folder, failed.message());
    const std::pair<std::string, std::string> files[] = {
        {folder + "/settings.json", example_settings(model_path)},
        {folder + "/config.toml", example_toml(model_path)}};
    for (const auto& [path, text] : files) {
        if (std::filesystem::exists(path))
            return error("{}: is already there; not overwritten", path);
    }
    for (const auto& [path, text] : files) {
        std::ofstream file(path);
        file << text;
        file.close();
        if (!file) return error("{}: cannot be written", path);
    }
    return {};
}

}  // namespace aerie
