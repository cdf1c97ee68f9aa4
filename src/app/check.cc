// aerie check: everything that serve would refuse, without starting anything.
#include <cstdio>

#include "app/card_support.h"
#include "app/subcommands.h"
#include "config/command_line.h"
#include "config/example.h"
#include "config/keys.h"
#include "config/memory_plan.h"
#include "config/report.h"

namespace aerie {
namespace {

void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

int fail(const std::string& message) {
    std::fprintf(stderr, "error: %s\n", message.c_str());
    return 2;
}

int write_pair(const std::string& folder, const CommandLine& command_line) {
    std::string model = "models/demo";
    for (const auto& [flag, value] : command_line.overrides) {
        if (flag == "model-path") model = value;
    }
    if (auto status = write_example(folder, model); !status) return fail(status.message());
    print(
        fmt::format("wrote {0}/settings.json and {0}/config.toml; check them with\n"
                    "  aerie check --config {0}/settings.json --ae-config {0}/config.toml\n",
                    folder));
    return 0;
}

void print_report(const LoadedConfig& loaded) {
    const Config& config = loaded.config;
    for (const std::string& note : loaded.diagnostics.notes) print("note: " + note + '\n');
    if (!config.separated()) print(disabled_line(config, loaded.placement) + '\n');
    print(replicas_line(loaded.placement) + "\n\n" + placement_table(loaded) + '\n' +
          memory_table(loaded) + '\n' + sizes_line(loaded) + '\n');
    print(kv_lines(loaded) + "\n\n");
    print(print_config(config));
}

}  // namespace

int run_check(const std::vector<std::string>& arguments) {
    bool json = false, keys = false;
    std::string memory, example;
    ParsedArguments parsed = parse_command_line(
        "check", arguments,
        {{"--json", "print the result as JSON", &json},
         {"--keys", "print every key with its meaning, and exit", &keys},
         {"--card-memory", "assume cards with this much memory, such as 141G", nullptr, &memory},
         {"--example", "write a valid pair of files into this folder, and exit", nullptr,
          &example}});
    if (keys) return print(describe_keys()), 0;
    if (!example.empty()) return write_pair(example, parsed.command_line);
    if (!memory.empty()) {
        parsed.command_line.card_memory = parse_bytes(memory);
        if (parsed.command_line.card_memory == 0) {
            parsed.diagnostics.errors.push_back(fmt::format(
                "command line: --card-memory: found {}, expected a size such as 141G", memory));
        }
    }
    const StartedConfig started = load_or_explain(parsed);
    if (started.exit_status == 0) return 0;  // --help
    if (started.exit_status < 0) {
        const Status runs = check_card_support(started.loaded);
        if (!runs && memory.empty()) return fail(runs.message());
        if (!runs && !json) print("note: a plan only: " + runs.message() + '\n');
    }
    if (json) {
        print(loaded_to_json(started.loaded).dump(2) + '\n');
    } else if (started.exit_status < 0) {
        print_report(started.loaded);
    }
    return started.exit_status < 0 ? 0 : started.exit_status;
}

}  // namespace aerie
