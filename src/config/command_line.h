// The options that serve, check and the other subcommands share: --config, --ae-config, --device,
// …, and every key of the table as --kebab-case value.
#pragma once

#include <string>
#include <vector>

#include "config/load.h"

namespace aerie {

// An option of one subcommand alone. Exactly one of the two targets is set; both outlive the call.
struct ExtraOption {
    const char* flag;  // with its dashes: "--json"
    const char* help;
    bool* on = nullptr;            // the flag stands alone
    std::string* value = nullptr;  // the flag takes one value
};

struct ParsedArguments {
    CommandLine command_line;
    bool help = false;  // --help was given: print help_text, exit 0
    std::string help_text;
    bool usable = true;       // false: not even the flags could be told apart
    Diagnostics diagnostics;  // unknown flags, missing values
};

// `arguments` are those after the subcommand's name.
ParsedArguments parse_command_line(const std::string& subcommand,
                                   const std::vector<std::string>& arguments,
                                   const std::vector<ExtraOption>& extra = {});

struct StartedConfig {
    LoadedConfig loaded;
    int exit_status = -1;  // >= 0: the subcommand ends with it (0 after --help, 2 after errors)
};

// Loads what was parsed on this machine. Prints help on standard output, mistakes on standard
// error, one a line: "error: …", "warning: …".
StartedConfig load_or_explain(const ParsedArguments& parsed);

// Both of the above: all that most subcommands need.
StartedConfig config_from_arguments(const std::string& subcommand,
                                    const std::vector<std::string>& arguments,
                                    const std::vector<ExtraOption>& extra = {});

}  // namespace aerie
