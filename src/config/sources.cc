#include "config/sources.h"

#include <algorithm>

#include "base/check.h"

namespace aerie {

bool Sources::given(std::string_view section, std::string_view name) const {
    return places_.contains(find_key(section, name));
}

bool Sources::any_bad(std::string_view section) const {
    return std::any_of(bad_.begin(), bad_.end(),
                       [&](const ConfigKey* key) { return section == key->section; });
}

std::string Sources::describe(const Config& config, std::string_view section,
                              std::string_view name) const {
    const ConfigKey* key = find_key(section, name);
    CHECK(key != nullptr, "no key {} {}", section, name);
    const Json value = key->get(config);
    const std::string text = value.is_null() ? key->unset : value.dump();
    const auto place = places_.find(key);
    if (place != places_.end()) {
        return fmt::format("{}: {} = {}", place->second, key->label(), text);
    }
    const bool file = key->in_settings() ? has_settings : has_toml;
    return fmt::format("{}: {} = {} ({})", file_of(*key), key->label(), text,
                       file ? "default, not given" : "default, no such file given");
}

}  // namespace aerie
