// row<FIELD(section.name)>(…): one row of the table of keys, its type taken from the field of
// Config that it fills. Only settings_keys.cc, http_keys.cc and toml_keys.cc include this.
#pragma once

#include <algorithm>
#include <list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/key_values.h"
#include "config/keys.h"

#define FIELD(path) \
    [](auto& config) -> auto& { return config.path; }

namespace aerie {

constexpr double kNoMax = 1e15;

template <typename T>
struct Unwrapped {
    using type = T;
    static constexpr bool optional = false;
};
template <typename T>
struct Unwrapped<std::optional<T>> {
    using type = T;
    static constexpr bool optional = true;
};

template <auto field>
Status set_field(const ConfigKey& key, Config& config, const Json& value) {
    return read_value(key, value, field(config));
}
template <auto field>
Json get_field(const Config& config) {
    return write_value(field(config));
}

// What a row says beyond its name and its field.
struct About {
    const char* flag = nullptr;  // default: the name in kebab-case
    const char* meaning = "";
    double min = 0, max = kNoMax;
    const char* unit = "";
    const char* unset = "";
    bool secret = false;
};

// The name in kebab-case, as long as the process lives.
inline const char* kebab(std::string name) {
    static std::list<std::string> kept;
    std::replace(name.begin(), name.end(), '_', '-');
    return kept.emplace_back(std::move(name)).c_str();
}

template <auto field>
ConfigKey row(const char* section, const char* name, About about) {
    using Type = std::remove_cvref_t<decltype(field(std::declval<Config&>()))>;
    using Value = typename Unwrapped<Type>::type;
    const char* flag = about.flag ? about.flag : kebab(name);
    return {.section = section,
            .name = name,
            .flag = flag,
            .type = type_word(static_cast<const Value*>(nullptr)),
            .unset = about.unset,
            .unit = about.unit,
            .meaning = about.meaning,
            .min = about.min,
            .max = about.max,
            .secret = about.secret,
            .choices = choices_of(static_cast<const Value*>(nullptr)),
            .set = set_field<field>,
            .get = get_field<field>};
}

std::vector<ConfigKey> settings_rows();
std::vector<ConfigKey> http_rows();  // those of settings.json that concern TLS and what clients may do
std::vector<ConfigKey> toml_rows();

}  // namespace aerie
