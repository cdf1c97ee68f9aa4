// aerie SUBCOMMAND …: finds the subcommand and runs it.
#include <cstdio>
#include <string>
#include <vector>

#include "app/subcommands.h"
#include "config/nearest.h"

namespace aerie {
namespace {

struct Subcommand {
    const char* name;
    int (*run)(const std::vector<std::string>& arguments);
    const char* help;  // null: not for people
};

constexpr Subcommand kSubcommands[] = {
    {"serve", run_serve, "serve the model over HTTP; starts every host of this machine"},
    {"launch_server", run_serve, "the same, for launch lines written for SGLang"},
    {"check", run_check, "check settings.json and config.toml; print placement and memory"},
    {"host", run_host_process, nullptr},
    {"bench", run_bench, "load on a server, or separation on against off: --compare"},
};

void print_help(std::FILE* to) {
    std::fprintf(to, "usage: aerie SUBCOMMAND [options]; aerie SUBCOMMAND --help lists them\n\n");
    for (const Subcommand& subcommand : kSubcommands) {
        if (subcommand.help == nullptr) continue;
        std::fprintf(to, "  %-14s %s\n", subcommand.name, subcommand.help);
    }
}

int run(const std::string& name, const std::vector<std::string>& arguments) {
    std::vector<std::string> known;
    for (const Subcommand& subcommand : kSubcommands) {
        if (name == subcommand.name) return subcommand.run(arguments);
        if (subcommand.help != nullptr) known.emplace_back(subcommand.name);
    }
    if (name == "--help" || name == "-h" || name == "help") {
        print_help(stdout);
        return 0;
    }
    std::fprintf(stderr, "error: unknown subcommand %s%s\n", name.c_str(),
                 did_you_mean(name, known).c_str());
    print_help(stderr);
    return 2;
}

}  // namespace
}  // namespace aerie

int main(int argc, char** argv) {
    if (argc < 2) {
        aerie::print_help(stderr);
        return 2;
    }
    return aerie::run(argv[1], std::vector<std::string>(argv + 2, argv + argc));
}
