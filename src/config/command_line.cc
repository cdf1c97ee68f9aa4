#include "config/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>

#include "config/environment.h"
#include "config/keys.h"
#include "config/nearest.h"
#include "config/sglang_keys.h"

namespace aerie {
namespace {

// Flags that fill CommandLine itself, as text.
struct OwnFlags {
    std::string config, ae_config, device, node_rank, rendezvous;
    bool in_process = false, share_cards = false;
};

std::string with_aliases(const std::string& flag) {
    std::string names = "--" + flag;
    for (const std::string& alias : aliases_of(flag)) names += ",--" + alias;
    return names;
}

std::string help_of(const ConfigKey& key) {
    std::string help = key.meaning;
    if (key.unit[0]) help += fmt::format(" [{}]", key.unit);
    return help;
}

class Parser {
  public:
    Parser(const std::string& subcommand, const std::vector<ExtraOption>& extra)
        : app_("", "aerie " + subcommand), extra_(extra) {
        app_.allow_extras();
        app_.set_help_flag();
        app_.add_flag("-h,--help", help_, "print this and exit");
        text("--config", own_.config, "settings.json: the engine");
        text("--ae-config", own_.ae_config, "config.toml: the cluster and the separation");
        text("--device", own_.device, "auto, cpu or cuda");
        text("--node-rank", own_.node_rank, "K: this machine is node-K");
        text(with_aliases("rendezvous"), own_.rendezvous,
             "HOST:PORT where node-0's launcher listens");
        app_.add_flag("--in-process", own_.in_process, "every node as threads of one process");
        app_.add_flag("--share-cards", own_.share_cards, "hosts of this machine may share a GPU, each with an equal part of it");
        for (const ExtraOption& option : extra) {
            option.on ? void(app_.add_flag(option.flag, *option.on, option.help))
                      : text(option.flag, *option.value, option.help);
        }
        for (const ConfigKey& key : config_keys()) add_key(key);
    }

    ParsedArguments run(const std::vector<std::string>& arguments) {
        ParsedArguments out;
        std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
        try {
            app_.parse(reversed);
        } catch (const CLI::ParseError& e) {
            out.diagnostics.errors.push_back(fmt::format("command line: {}", e.what()));
            out.usable = false;
            return out;
        }
        out.help = help_;
        out.help_text = help_ ? app_.help() : "";
        for (const std::string& flag : order_) {
            const CLI::Option* option = keys_.at(flag);
            if (option->count() == 0) continue;
            const auto results = option->results();
            const std::string value =
                results.empty() || results.back().empty() ? "true" : results.back();
            out.command_line.overrides.emplace_back(flag, value);
        }
        take_own(out);
        take_unknown(out);
        return out;
    }

  private:
    void text(const std::string& names, std::string& into, const char* help) {
        app_.add_option(names, into, help)->take_last();
    }

    void add_key(const ConfigKey& key) {
        if (key.flag[0] == '\0' || keys_.contains(key.flag)) return;
        CLI::Option* option =
            app_.add_option(with_aliases(key.flag), texts_[key.flag], help_of(key));
        // A switch may stand alone; a repeated flag's last value counts.
        std::string_view(key.type) == "bool" ? option->expected(0, 1) : option->expected(1);
        option->take_last();
        keys_[key.flag] = option;
        order_.emplace_back(key.flag);
    }

    void take_own(ParsedArguments& out) {
        CommandLine& line = out.command_line;
        auto& errors = out.diagnostics.errors;
        line.config_path = own_.config;
        line.ae_config_path = own_.ae_config;
        line.rendezvous = own_.rendezvous;
        line.in_process = own_.in_process;
        line.share_cards = own_.share_cards;
        if (!own_.device.empty()) {
            for (int i = 0; name_of(static_cast<DeviceChoice>(i)) != nullptr; ++i) {
                if (own_.device == name_of(static_cast<DeviceChoice>(i))) {
                    line.device = static_cast<DeviceChoice>(i);
                }
            }
            if (!line.device) {
                errors.push_back(fmt::format(
                    "command line: --device: found {}, expected auto, cpu or cuda", own_.device));
            }
        }
        if (!own_.node_rank.empty()) {
            int rank = -1;
            const char* end = own_.node_rank.data() + own_.node_rank.size();
            const auto read = std::from_chars(own_.node_rank.data(), end, rank);
            if (read.ec == std::errc() && read.ptr == end && rank >= 0) {
                line.node_rank = rank;
            } else {
                errors.push_back(fmt::format(
                    "command line: --node-rank: found {}, expected a whole number from 0",
                    own_.node_rank));
            }
        }
    }

    std::vector<std::string> known_flags() const {
        std::vector<std::string> known = {"config",     "ae-config",  "device",     "node-rank",
                                          "rendezvous", "in-process", "share-cards"};
        for (const ExtraOption& option : extra_) known.emplace_back(option.flag + 2);
        for (const std::string& flag : order_) {
            known.push_back(flag);
            for (std::string& alias : aliases_of(flag)) known.push_back(std::move(alias));
        }
        return known;
    }

    // What CLI11 did not know: flags of SGLang (their values follow them), or mistakes.
    void take_unknown(ParsedArguments& out) {
        bool after_flag = false;
        for (const std::string& word : app_.remaining()) {
            if (!word.starts_with("-") || word.size() < 2 || std::isdigit(word[1])) {
                if (!after_flag) {
                    out.diagnostics.errors.push_back(
                        fmt::format("command line: found {}, expected a flag", word));
                }
                continue;
            }
            after_flag = true;
            const std::string flag = word.substr(0, word.find('='));
            std::string name = flag.substr(flag.find_first_not_of('-') == std::string::npos
                                               ? flag.size()
                                               : flag.find_first_not_of('-'));
            std::string key = name;
            std::replace(key.begin(), key.end(), '-', '_');
            if (is_sglang_key(key)) {
                out.diagnostics.warnings.push_back(fmt::format(
                    "command line: {} is a flag of SGLang that has no meaning here; ignored",
                    flag));
            } else {
                const std::string meant = nearest(name, known_flags());
                out.diagnostics.errors.push_back(
                    fmt::format("command line: unknown flag {}{}", flag,
                                meant.empty() ? "" : "; did you mean --" + meant + "?"));
            }
        }
    }

    CLI::App app_;
    OwnFlags own_;
    bool help_ = false;
    const std::vector<ExtraOption>& extra_;
    std::map<std::string, CLI::Option*> keys_;  // by flag
    std::map<std::string, std::vector<std::string>> texts_;
    std::vector<std::string> order_;
};

void print_all(const Diagnostics& diagnostics) {
    for (const std::string& line : diagnostics.warnings) {
        std::fprintf(stderr, "warning: %s\n", line.c_str());
    }
    for (const std::string& line : diagnostics.errors) {
        std::fprintf(stderr, "error: %s\n", line.c_str());
    }
}

}  // namespace

ParsedArguments parse_command_line(const std::string& subcommand,
                                   const std::vector<std::string>& arguments,
                                   const std::vector<ExtraOption>& extra) {
    return Parser(subcommand, extra).run(arguments);
}

StartedConfig load_or_explain(const ParsedArguments& parsed) {
    StartedConfig out;
    if (parsed.help) {
        std::fputs(parsed.help_text.c_str(), stdout);
        out.exit_status = 0;
        return out;
    }
    if (parsed.usable) out.loaded = load_config(parsed.command_line, probe_machine());
    Diagnostics& all = out.loaded.diagnostics;
    const Diagnostics& first = parsed.diagnostics;
    all.errors.insert(all.errors.begin(), first.errors.begin(), first.errors.end());
    all.warnings.insert(all.warnings.begin(), first.warnings.begin(), first.warnings.end());
    print_all(all);
    if (!all.ok()) out.exit_status = 2;
    return out;
}

StartedConfig config_from_arguments(const std::string& subcommand,
                                    const std::vector<std::string>& arguments,
                                    const std::vector<ExtraOption>& extra) {
    return load_or_explain(parse_command_line(subcommand, arguments, extra));
}

}  // namespace aerie
