// The one table of keys: it parses, finds unknown keys, makes the command line's flags, prints the
// configuration in full, and documents it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "config/config.h"

namespace aerie {

struct ConfigKey {
    const char* section;  // "" for settings.json, else the table of config.toml
    const char* name;
    // The flag without its dashes; "" for none. Keys with the same flag are a pair: the command
    // line sets both.
    const char* flag;
    const char* type;   // "int", "float", "bool", "string", "list", "table", "choice"
    const char* unset;  // the word for "no value": "auto", "none", …; "" where there always is one
    const char* unit;   // "tokens", "seconds", …; "" where there is none
    const char* meaning;
    double min, max;  // of numbers, inclusive
    bool secret;      // printed as ***
    std::vector<const char*> choices;

    Status (*set)(const ConfigKey& key, Config& config, const Json& value);
    Json (*get)(const Config& config);  // null: unset

    bool in_settings() const { return section[0] == '\0'; }
    std::string label() const;     // "tp_size", "[parallel] attention_tp"
    std::string expected() const;  // "a whole number from 1 to 4"
};

// In the order of the files. Lives as long as the process.
std::span<const ConfigKey> config_keys();
const ConfigKey* find_key(std::string_view section, std::string_view name);

// SGLang's other names for flags: "tp" → "tp-size". Returns `flag` itself where it is no alias.
std::string_view resolve_flag_alias(std::string_view flag);
// All other names of a flag.
std::vector<std::string> aliases_of(std::string_view flag);

// The configuration in full, one "key = value" a line, grouped by file; secrets masked.
std::string print_config(const Config& config);
Json config_to_json(const Config& config);  // {"settings": {…}, "cluster": {…}, …}
// The table itself, for people: key, flag, default, range, meaning.
std::string describe_keys();

// What must be equal on every machine of a cluster. Leaves out what may differ: the log level, the
// HTTP address, keys and certificates, and who this node is.
uint64_t config_fingerprint(const Config& config);

}  // namespace aerie
